"""How many drafts are worth verifying: what operators say a round costs, and what a running engine shows.

Reads in this order: `tables` (the two settings), `rules` (what an engine's depth policy needs of them), `best` (which
depth won a measurement), then what measures one.  Must never import torch or vLLM, nor guess a depth where the
measurement's noise exceeds the difference.
"""
