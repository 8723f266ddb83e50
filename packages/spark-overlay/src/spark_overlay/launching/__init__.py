"""Launch configs as data: what an experiment sets, and what a site is, become an environment and a command.

One launch top to bottom: `layers` (files, inheritance and --set, with where each value came from) -> `model` and
`sections` (what each may say) -> `render` (environment and command of one host) -> `formats`, `container` (shown) or
`spark_overlay.launch` (started).  Pure but for the files that are named; must never import vLLM.
"""
