"""What lies on the network, asked for without waiting long where there is none."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

NETWORK_TIMEOUT = 5.0  # seconds until a host counts as out of reach


def reachable(url: str, timeout: float = NETWORK_TIMEOUT) -> bool:
    """Whether the host of `url` answers within `timeout` seconds, through the proxies of the environment."""
    try:
        request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "anchored"})
        urllib.request.build_opener().open(request, timeout=timeout).close()
    except urllib.error.HTTPError:
        return True  # an answer, if not a friendly one
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def hub_without_waiting() -> Iterator[None]:
    """Inside, the Hugging Face hub is in offline mode if it cannot be reached: cached files work, others fail at once.

    By itself it tries each of several files six times: 46 seconds without a network.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or reachable(constants.ENDPOINT):
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    except Exception as error:  # the hub and timm each say this in several ways
        raise OSError(f"{constants.ENDPOINT} cannot be reached and the weights are not in the cache") from error
    finally:
        constants.HF_HUB_OFFLINE = False


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 200 characters; its type where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
