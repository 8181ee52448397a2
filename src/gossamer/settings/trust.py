"""Whose project is this? Its settings, spiders and state decide which programs run here, so no other user may write
them.

What it does: `distrust` checks the owner and the mode of files and folders. Trusted owners are the user who runs this
process and root. A folder that others may write is not trusted, even with a sticky bit: others may put a file into it
before we do.
How it fails: `demand_trust` raises Misconfigured, before anything of the project is read or run.
How it recovers: the user fixes owner and mode, or lists folders to trust in GOSSAMER_TRUST: a variable, because a
setting could make the project trust itself.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from ..errors import Misconfigured

TRUST = "GOSSAMER_TRUST"  # folders separated by colons; everything below them is trusted


def demand_trust(*paths: Path) -> None:
    """Raise Misconfigured if another user could have written one of them. A path that does not exist is fine."""
    for path in paths:
        if fault := distrust(path):
            raise Misconfigured(fault)


def distrust(path: Path) -> str:
    """Why another user could have written it; empty if only we and root can, or if it does not exist."""
    try:
        link, target = os.lstat(path), os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return "" if _is_trusted(path) else f"{path} cannot be inspected: {error.strerror}."
    fault = _fault_of(link, target)
    return "" if not fault or _is_trusted(path) else _told(path, path.resolve(), fault)


def _fault_of(link: os.stat_result, target: os.stat_result) -> str:
    for status in (link, target):
        if status.st_uid not in (os.geteuid(), 0):
            return f"belongs to {_user(status.st_uid)}"
    if target.st_mode & stat.S_IWOTH:
        return "may be changed by every user of this machine"
    if target.st_mode & stat.S_IWGRP and not _is_private(target.st_gid):
        return f"may be changed by the group {_group(target.st_gid)}"
    return ""


def _is_trusted(path: Path) -> bool:
    folders = [Path(folder).resolve() for folder in os.environ.get(TRUST, "").split(os.pathsep) if folder]
    return any(path.resolve().is_relative_to(folder) for folder in folders)


def distrust_code(path: Path) -> str:
    """Like `distrust`, for a file that runs: also because of its folder, and of the folder that a link leads to."""
    return distrust(path) or distrust(path.parent) or (distrust(path.resolve().parent) if path.is_symlink() else "")


def _told(path: Path, real: Path, fault: str) -> str:
    folder = real if real.is_dir() else real.parent
    return (
        f"{path} {fault}, and a project's code runs as you. If you trust everyone who can write there, set "
        f"{TRUST}={folder}; else make it your own (chown, chmod go-w) or work in another folder."
    )


def _is_private(gid: int) -> bool:
    """Is it a group of one, as many systems create for each user? Then it may write whatever its user may."""
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
