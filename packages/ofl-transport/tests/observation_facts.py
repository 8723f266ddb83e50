"""What an engine of tests says of itself."""

from ofl.contract.observation_v1 import SCHEMA, Facts

ENGINE_FACTS = Facts(
    schema=SCHEMA, start_id="ab" * 16, arm="test", rank=0, ranks=1, engine="simulator", engine_version="1",
    overlay_version="1", device="simulated", device_capability="", driver="", speculator="", speculator_module="",
    policy="", transport="", draft_parameters=0, draft_layers=0, budget_tokens=100, block_length=0, window=0,
    capabilities=(),
)  # fmt: skip
