"""The window: REST under `/api/v1`, live streams and the pages, on a Unix socket and on TCP.

A door only: it reads through `control.views` and changes the world only through `control.verbs`.  Everything here is
synchronous (in the thread pool) but `stream`, the long poll and the ASGI layer around them.
"""
