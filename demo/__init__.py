"""The demo: a real vLLM engine on a CPU drafts through a remote worker, and the text is proved unchanged.

Owns the story that `./run demo` tells.  It uses the packages as an operator would (their commands, settings and files)
and must never reach into them; `demo.simulated` alone does, as it is made of their inside.
"""
