"""Whether a page of ours was asked for by a name that is ours.

In: the value of a Host header.  Out: yes or no.  A page on a port of this machine can be reached by any web site whose
name resolves here (DNS rebinding); such a request bears that site's name.  An address is nobody's name.

**Source:** design page DESIGN.md section 8; RFC 9110 section 7.2.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection


def is_our_host(host: str, names: Collection[str]) -> bool:
    """`host`: NAME, ADDRESS or [ADDRESS], with or without :PORT; `names`: small letters, besides `localhost`."""
    bare = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return bare.lower() == "localhost" or bare.lower() in names
    return True
