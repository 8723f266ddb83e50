"""`spark-overlay bench`: what remote drafting brings on a running engine, OFF and ON by turns, through its HTTP API.

Reading order: `plan` (what to measure) -> `sample` (one request, and whether it counts) -> `arms` (OFF and ON: one
engine by its control file, or two engines) -> `evidence` (whether ON really was) -> `run` (the order of it all) ->
`result` (figures, and their schema) -> `table` -> `command`.

Its rule: no figure for what was not measured.  A request beside ours, drafts that nobody accepted or a remote that
failed end the run in a sentence, without figures.
"""
