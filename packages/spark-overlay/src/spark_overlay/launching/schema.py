"""`python -m spark_overlay.launching.schema FOLDER`: writes the published schemas of configs and sites.

They are made from the models; a test compares.
"""

import json
import sys
from pathlib import Path

from pydantic import BaseModel

from spark_overlay.launching.model import LaunchConfig, Site

MODELS: dict[str, type[BaseModel]] = {"launch-config": LaunchConfig, "launch-site": Site}


def text(name: str) -> str:
    """One schema as it is published."""
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", **MODELS[name].model_json_schema()}
    return json.dumps(made, indent=2, sort_keys=True) + "\n"


def main() -> None:
    """Rewrite the files in the folder given."""
    for name in MODELS:
        Path(sys.argv[1], f"{name}.schema.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
