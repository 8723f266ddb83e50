"""The engine's side: stock's embedding with its rows from a table server.  Alone names vLLM.

In the order in which an engine meets it: `plugin` (the entry point), `versions`, `install` (rebinding), `guard` (an
engine without remote tables does not start), `refusals`, `place` (which rank of which model), `embedding` (the
replacement), `tables` (manifest against model, one reader a process), `feed` (one layer's staging and hand-over),
`kernels`, `stream` (memory operations of a CUDA stream), `memory` (what the GPU and the reader share), `report`.
"""
