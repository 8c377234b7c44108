"""The lab in a link: what a workspace file holds of network, job, plan and tab, packed, after the ``#`` of an address.

No request carries what stands there. Traces are left out, and so are the settings of panels that name files of
whoever made the link.
"""

import base64
import json
import re
import zlib

from dtfm_lab.domain.errors import FileError
from dtfm_lab.files.workspaces import WorkspaceState, workspace_from_mapping, workspace_to_mapping

MARK = "#dtfm-lab="
MOST_CHARACTERS = 100_000
"""Longest link. A shell takes no word of more than 128 KiB; 64 devices take some 10,000 characters."""
MOST_BYTES = 4_000_000
"""Most bytes that a link is unpacked to: a short one may stand for gigabytes."""
LINKED = ("network", "plan")
"""Panels whose settings a link holds."""


def link_of(state: WorkspaceState) -> str:
    """Return the part of a link that holds the state, from its ``#`` on. Raises FileError where it is too long."""
    settings = {name: state.settings[name] for name in LINKED if name in state.settings}
    kept = state.model_copy(update={"predicted": None, "measured": None, "settings": settings})
    text = json.dumps(workspace_to_mapping(kept), separators=(",", ":"))
    packed = base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
    if len(packed) > MOST_CHARACTERS or len(text) > MOST_BYTES:
        found = f"the link would have {len(packed):,} characters"
        raise FileError(f"{found}; wanted at most {MOST_CHARACTERS:,}: save the lab as a file")
    return f"{MARK}{packed}"


def state_from_link(link: str) -> WorkspaceState:
    """Return the state that a link holds, whatever address stands before it; raises FileError in one line."""
    _, mark, packed = link.strip().partition(MARK)
    if not mark:
        raise FileError(f"the link holds no lab; wanted an address with {MARK}… at its end")
    if len(packed) > MOST_CHARACTERS:
        raise FileError(f"the link has {len(packed):,} characters; wanted at most {MOST_CHARACTERS:,}")
    try:
        data = json.loads(_unpacked(packed))
    except (ValueError, RecursionError, zlib.error):
        raise FileError("the link is damaged or cut off; wanted it whole, as it was copied") from None
    if not isinstance(data, dict):
        raise FileError("the link holds no lab; wanted one that the lab made")
    return workspace_from_mapping(data, where="the link")


def _unpacked(packed: str) -> bytes:
    """Raises ValueError or zlib.error where it is damaged, and FileError where it would be huge."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", packed):
        raise ValueError
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), MOST_BYTES)
    if decompressor.unconsumed_tail:
        raise FileError(f"the link unpacks to more than {MOST_BYTES:,} bytes; wanted at most so many")
    if not decompressor.eof:
        raise ValueError
    return text
