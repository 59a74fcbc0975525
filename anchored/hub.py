"""Runs on the Hugging Face Hub: the files of a run folder in one repository, and a card that says what they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from anchored.errors import InputError
from anchored.files import read_json
from anchored.weights import first_line, hub_without_waiting

if TYPE_CHECKING:
    from anchored.runs import Run

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


def push(run: Run, repo_id: str, *, private: bool = False, message: str | None = None, token: str | None = None) -> str:
    """Upload the folder of `run` to the model repository `repo_id` (user/name), made if needed; returns its address.

    token: of an account that may write there; the one of `hf auth login` by default. Raises InputError for another
    form of name, and where the Hub refuses or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    if not REPOSITORY.fullmatch(repo_id):
        raise InputError(f"a Hub repository is named user/name; got {repo_id!r}.")
    files = [run.folder / name for name in FILES if (run.folder / name).is_file()]
    if not (run.folder / "run.json").is_file():
        raise InputError(f"{run.folder} is not a complete run: it has no run.json.")
    api = HfApi(token=token, library_name="anchored")
    operations = [CommitOperationAdd(file.name, str(file)) for file in files]
    operations.append(CommitOperationAdd("README.md", card(run, repo_id).encode()))
    try:
        with hub_without_waiting():
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            api.create_commit(repo_id, operations, commit_message=message or f"A run of anchored: {run.config.run}")
    except Exception as error:  # the hub and its HTTP client each have their own
        raise InputError(
            f"the run could not be pushed to {api.endpoint}/{repo_id} ({first_line(error)}). It takes a network and "
            "an account that may write there (hf auth login, or token=)."
        ) from error
    return str(address)


def card(run: Run, repo_id: str) -> str:
    """The README of a run's repository."""
    classes = ", ".join(run.classes[:20]) + (", ..." if len(run.classes) > 20 else "")
    return f"""---
library_name: anchored
pipeline_tag: image-classification
tags: [anchored, anchoring]
---

# {repo_id.partition("/")[2]}

`{run.config.model}` trained by the method `{run.config.variant}` (seed {run.config.seed}) with the recipe
`{run.config.recipe.name}`; {len(run.classes)} classes: {classes}.

```python
import anchored
from PIL import Image

run = anchored.load({json.dumps(repo_id)})
prediction = run.predict(Image.open("image.jpg"), protocol="one_random")
print(run.classes[int(prediction.probs.argmax())], float(prediction.energy))
```
"""
