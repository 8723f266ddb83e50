"""Doctor on the worker's host: what `ofl.doctor` finds there, and the checkpoint and GPU beside it.

`asks` makes facts, `checks` judges them and asks nobody.  Imports no torch and computes no drafts.
"""
