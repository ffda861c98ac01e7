from .study import cold_start

cold_start.main()
