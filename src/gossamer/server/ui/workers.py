"""Views of workers with their heartbeats, which can be drained; of routes, proxies and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from ...project.access.keys import ADMIN, JOBS
from ...project.overrides import OverrideQuery, list_overrides
from ...project.records.figures import history
from ...project.row_page import RowFilters, row_page
from ...project.sites.proxies import proxy_pools, reset_proxies, try_proxies
from ...project.sites.routes import reset_routes, route_report
from ...project.workers.workers import FATES, WorkerView, drain_worker, forget_worker, leading_scheduler, list_workers
from ...units import many
from .charts import Series, bars
from .view import Context, Done, FormAction, Question, View, Visit

DAY = 86_400.0
SITES_SHOWN = 100
Name = Annotated[str, Meta(max_length=300)]
KINDS = ("a", "b", "c", "d", "warn", "ok", "bad")


class WorkerForm(msgspec.Struct, frozen=True, kw_only=True):
    name: Name


class PoolForm(msgspec.Struct, frozen=True, kw_only=True):
    pool: Name
    proxy: Name = ""


class SiteForm(msgspec.Struct, frozen=True, kw_only=True):
    site: Name = ""


class WorkersFilters(RowFilters, frozen=True, kw_only=True):
    state: Name | None = None


class RoutesFilters(msgspec.Struct, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=30)] = 1


WORKER_COLUMNS: dict[str, Callable[[WorkerView], object]] = {
    "worker": lambda one: (one.host, one.pid),
    "flight": lambda one: one.in_flight,
    "done": lambda one: one.done,
    "cpu": lambda one: one.cpu,
    "memory": lambda one: one.memory,
    "seen": lambda one: one.seen_at,
    "started": lambda one: one.started_at,
}


async def list_region(visit: Visit) -> Context:
    chosen, workers = visit.of(WorkersFilters), await list_workers(visit.project)
    states = Counter(_state(one) for one in workers)
    wanted = [one for one in workers if chosen.state in (None, _state(one))]
    return {
        "workers": workers,
        "fates": FATES,
        "page": row_page(wanted, chosen, text=_worker_text, columns=WORKER_COLUMNS),
        "states": dict(states.most_common()),
        "filtered": bool(chosen.q or chosen.state),
        "scheduler": await leading_scheduler(visit.project),
        "alive": [one for one in workers if not one.missing],
    }


def _state(one: WorkerView) -> str:
    return one.fate or one.state


def _worker_text(one: WorkerView) -> str:
    return f"{one.name} {one.host}/{one.pid} {one.job} {one.version} {one.serves}"


async def ask_to_drain(visit: Visit) -> Question:
    name = visit.of(WorkerForm).name
    words = f"Let {name} finish what it has begun and end? Its supervisor starts no other worker in its place."
    return Question(words=words, button="Drain it", back="/ui/workers")


async def restart(visit: Visit) -> Done:
    worker = await drain_worker(visit.project, visit.of(WorkerForm).name, restart=True)
    return Done(words=f"{worker.name} was asked to restart.", to="/ui/workers", target=worker.name)


async def forget_missing(visit: Visit) -> Done:
    worker = await forget_worker(visit.project, visit.of(WorkerForm).name)
    return Done(words=f"{worker.name} is forgotten.", to="/ui/workers", target=worker.name)


async def drain(visit: Visit) -> Done:
    worker = await drain_worker(visit.project, visit.of(WorkerForm).name)
    return Done(words=f"{worker.name} was asked to drain.", to="/ui/workers", target=worker.name)


# -- routes, proxies, budgets ----------------------------------------------------------------------------------------


async def learned(visit: Visit) -> Context:
    found = await list_overrides(visit.project, visit.caller, OverrideQuery())
    return {
        "report": await route_report(visit.project, limit=SITES_SHOWN),
        "by_hand": {one.key: one for one in found if one.key.startswith("router.") or one.key.endswith(".budget")},
    }


async def pools(visit: Visit) -> Context:
    found = await list_overrides(visit.project, visit.caller, OverrideQuery(prefix="proxies."))
    return {"pools": await proxy_pools(visit.project), "by_hand": {one.key for one in found}}


async def spend(visit: Visit) -> Context:
    days = visit.of(RoutesFilters).days
    found = await history(visit.project, since=visit.project.clock.now() - days * DAY, busiest=0)
    names = sorted({name for point in found.points for name in point.routes})
    times = [point.at for point in found.points]
    credits = [
        Series(name, [point.routes[name].credits if name in point.routes else 0.0 for point in found.points], kind)
        for name, kind in zip(names, KINDS * (len(names) // len(KINDS) + 1), strict=False)
    ]
    return {
        "routes": {name: found.whole.routes[name] for name in sorted(found.whole.routes)},
        "credits": found.whole.credits,
        "chart_of": bars("Credits spent, by route", times, [one for one in credits if any(one.values)]),
        "spent_anything": any(any(one.values) for one in credits),
    }


async def try_pool(visit: Visit) -> Done:
    pool = visit.of(PoolForm).pool
    found = await try_proxies(visit.project.settings, pool, only=visit.of(PoolForm).proxy or None)
    bad = [one for one in found if not one.ok]
    words = f"{len(found) - len(bad)} of {many(len(found), 'proxy', 'proxies')} of {pool} let us in"
    if bad:
        words += f". {bad[0].words}"[:400]
    return Done(words=f"{words.removesuffix('.')}.", to="/ui/routes", target=pool)


async def wake_pool(visit: Visit) -> Done:
    pool = visit.of(PoolForm).pool
    count = await reset_proxies(visit.project, pool)
    return Done(
        words=f"The rests of {many(count, 'proxy', 'proxies')} of {pool} are over.", to="/ui/routes", target=pool
    )


async def ask_to_forget(visit: Visit) -> Question:
    site = visit.of(SiteForm).site
    words = f"Forget what was learned about {site or 'every site'}? Its pages begin at the cheapest route again."
    return Question(words=words, button="Forget it", back="/ui/routes")


async def forget(visit: Visit) -> Done:
    site = visit.of(SiteForm).site or None
    count = await reset_routes(visit.project, site)
    return Done(words=f"Forgot {many(count, 'learned route')}.", to="/ui/routes", target=site or "")


VIEWS = (
    View("/ui/workers", "Workers", "workers.html", {"listed": list_region}, JOBS, query=WorkersFilters,
         group="Operate"),
    View("/ui/routes", "Routes and proxies", "routes.html", {"spend": spend, "learned": learned, "pools": pools},
         ADMIN, query=RoutesFilters, group="Operate", live=False),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/workers/drain", handler=drain, ask=ask_to_drain, form=WorkerForm, scope=ADMIN),
    FormAction(path="/ui/workers/restart", handler=restart, form=WorkerForm, scope=ADMIN),
    FormAction(path="/ui/workers/forget", handler=forget_missing, form=WorkerForm, scope=ADMIN),
    FormAction(path="/ui/routes/try", handler=try_pool, form=PoolForm, scope=ADMIN),
    FormAction(path="/ui/routes/wake", handler=wake_pool, form=PoolForm, scope=ADMIN),
    FormAction(path="/ui/routes/forget", handler=forget, ask=ask_to_forget, form=SiteForm, scope=ADMIN),
)
