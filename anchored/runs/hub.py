"""Runs on the Hugging Face Hub: the files of a run folder in one repository, and a card that says what they are."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from anchored.arms.run_config import RunConfig
from anchored.system.errors import InputError
from anchored.system.files import read_json
from anchored.system.network import first_line, hub_without_waiting

FILES = ("model.safetensors", "references.safetensors", "run.json")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def fetch(name: str, revision: str | None = None) -> Path:
    """The folder, in the cache, with the files of the run in the Hub repository `name` (user/name).

    Raises InputError where it is not to be had, or where its model is not one of a library: naming a callable of any
    Python package would let a stranger's file choose what is imported and called here.
    """
    from huggingface_hub import constants, snapshot_download

    try:
        with hub_without_waiting():
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except Exception as error:  # the hub, its HTTP client and the disk each have their own
        raise InputError(
            f"{name} is no folder here, and {constants.ENDPOINT}/{name} could not be fetched ({first_line(error)}). "
            "Where there is no network, copy the folder of the run here and pass its path."
        ) from error
    if not (folder / "run.json").is_file():
        raise InputError(f"{constants.ENDPOINT}/{name} is not a run of anchored: it has no run.json.")
    model = str(read_json(folder / "run.json").get("config", {}).get("model", ""))
    if ":" in model and model.partition(":")[0] not in ("timm", "torchvision", "hf"):
        raise InputError(
            f"the run {name} is of the model {model}, a callable of a Python package. If you trust it, download the "
            f"folder and load that: anchored.load({str(folder)!r})."
        )
    return folder


def push(
    folder: Path,
    repo_id: str,
    *,
    card: str,
    private: bool = False,
    message: str = "A run of anchored",
    token: str | None = None,
) -> str:
    """Upload the run in `folder` to the model repository `repo_id` (user/name), made if needed; returns its address.

    card: the repository's README. token: of an account that may write there; that of `hf auth login` by default.
    Raises InputError for another form of name, and where the Hub refuses or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    if not REPOSITORY.fullmatch(repo_id):
        raise InputError(f"a Hub repository is named user/name; got {repo_id!r}.")
    files = [folder / name for name in FILES if (folder / name).is_file()]
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder} is not a complete run: it has no run.json.")
    api = HfApi(token=token, library_name="anchored")
    operations = [CommitOperationAdd(file.name, _published(file)) for file in files]
    operations.append(CommitOperationAdd("README.md", card.encode()))
    try:
        with hub_without_waiting():
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            api.create_commit(repo_id, operations, commit_message=message)
    except Exception as error:  # the hub and its HTTP client each have their own
        raise InputError(
            f"the run could not be pushed to {api.endpoint}/{repo_id} ({first_line(error)}). It takes a network and "
            "an account that may write there (hf auth login, or token=)."
        ) from error
    return str(address)


def _published(file: Path) -> str | bytes:
    """The file as others may see it: a run.json without the places of its data on this machine."""
    if file.name != "run.json":
        return str(file)
    info = read_json(file)
    if info.get("source"):
        info["source"] = {**info["source"], "path": None, "root": None, "labels": None}
    return (json.dumps(info, indent=1, ensure_ascii=False) + "\n").encode()


def card(config: RunConfig, classes: Sequence[str], repo_id: str) -> str:
    """The README of a run's repository."""
    named = ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")
    return f"""---
library_name: anchored
pipeline_tag: image-classification
tags: [anchored, anchoring]
---

# {repo_id.partition("/")[2]}

`{config.model}` trained as the arm `{config.arm_name}` (seed {config.seed}) with the recipe
`{config.recipe.name}`; {len(classes)} classes: {named}.

```python
import anchored
from PIL import Image

run = anchored.load({json.dumps(repo_id)})
prediction = run.predict(Image.open("image.jpg"), protocol="one_random")
print(run.classes[int(prediction.probs.argmax())], float(prediction.energy))
```
"""
