"""Delivery: what brings the overlay to an engine's hosts and back.

Reads in this order: `branch` (what is laid over vLLM's file), `overlay_file` (building and judging such a file),
`content` (what a stage holds), `far_end` (what a host's shell is asked to do), `transport` (how it is asked),
`staging` (all hosts); `overlay_command` and `stage_command` are the command lines.
"""
