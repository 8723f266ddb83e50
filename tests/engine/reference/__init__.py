"""Helpers of the tests that compare the reference drafter with vLLM and with the formulas."""
