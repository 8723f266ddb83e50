"""The simulated engine together with the simulated worker: what neither package may do, as neither knows the other.

Needs the small workspace environment alone: no torch, no vLLM.  Tests and `./run demo --engine sim` run it;
`python -m demo.simulated --seed N` replays a seed that failed.
"""
