"""Whose project is this? Its settings, spiders and state decide which programs run here, so nobody else may write them.

What it does: `distrust` looks at the owner and the mode of files and folders. Ours are those of the user who runs this
process and those of root. A folder that others may write is not ours, with a sticky bit neither: others may put a file
into it before we do.
How it fails: `demand_trust` raises Misconfigured, before anything of the project is read or run.
How it recovers: the user mends owner and mode, or names the folders that are trusted all the same in GOSSAMER_TRUST:
a variable, because a setting of the project could say it of itself.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from ..errors import Misconfigured

TRUST = "GOSSAMER_TRUST"  # folders between colons; all that is below them is trusted


def demand_trust(*paths: Path) -> None:
    """Raises Misconfigured when somebody else could have written one of them. What does not exist is fine."""
    for path in paths:
        if fault := distrust(path):
            raise Misconfigured(fault)


def distrust(path: Path) -> str:
    """Why somebody else could have written it; empty when only we and root can, and when it does not exist."""
    real = path.resolve()
    trusted = [Path(folder).resolve() for folder in os.environ.get(TRUST, "").split(os.pathsep) if folder]
    if any(real.is_relative_to(folder) for folder in trusted):
        return ""
    try:
        link, target = path.lstat(), real.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{path} cannot be looked at: {error.strerror}."
    for status in (link, target):
        if status.st_uid not in (os.geteuid(), 0):
            return _told(path, real, f"belongs to {_user(status.st_uid)}")
    if target.st_mode & stat.S_IWOTH:
        return _told(path, real, "may be changed by every user of this machine")
    if target.st_mode & stat.S_IWGRP and not _is_private(target.st_gid):
        return _told(path, real, f"may be changed by the group {_group(target.st_gid)}")
    return ""


def _told(path: Path, real: Path, fault: str) -> str:
    folder = real if real.is_dir() else real.parent
    return (
        f"{path} {fault}, and what is in a project runs as you. If you trust all who can write there, set "
        f"{TRUST}={folder}; else make it your own (chown, chmod go-w) or work in another folder."
    )


def _is_private(gid: int) -> bool:
    """Is it a group of one, as many systems give to each user? Then the group may write whatever its user may."""
    users = {_user(os.geteuid()), _user(0)}
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return gid == os.geteuid()
    return group.gr_name in users and users.issuperset(group.gr_mem)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
