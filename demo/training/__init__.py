"""How the demo pair is made: corpus, target, drafter, confidence, export, measurement.

`python -m demo.training --help` lists the steps.  Needs torch, numpy, safetensors, tokenizers and click; only
`measure` needs the engine environment.  Nothing here is imported by the packages or by the demo itself.
"""
