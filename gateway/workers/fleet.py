"""All workers by the public model names they serve; what they list is learnt while running."""

from dataclasses import dataclass

from gateway.errors import GatewayError, NoWorker, UnknownModel
from gateway.workers.worker import Card, Worker
from policies import place

NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as a pool's configuration names it.

    Attributes:
        upstream_model: its own name for the pool's model; None = found out from what it lists.
    """

    worker: Worker
    upstream_model: str | None


class Pool:
    """The workers of one public model name (`gateway.ports.Pool`)."""

    __slots__ = ("_turn", "workers")

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._turn = 0

    def choose(self, now: float, tried: object | None, *, well: bool = False) -> Worker | None:
        """See `gateway.ports.Pool`."""
        workers = self.workers
        if len(workers) == 1:
            return None if workers[0] is tried else workers[0]
        self._turn += 1
        worker = place.least_running(workers, now, tried, self._turn)
        if well and worker is not None and worker.ejected_until > now:
            return None
        return worker


class Fleet:
    """All pools (`gateway.ports.Fleet`).

    A pool with a model name has its workers from the start. A pool without takes the names that its
    workers list, and drops a name when the last of them stops listing it.
    """

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._named: list[tuple[str, list[Member]]] = []
        self._unnamed: list[list[Worker]] = []
        self.workers: list[Worker] = []
        self.complaints: dict[str, str] = {}

    def add(self, model: str | None, members: list[Member]) -> None:
        """Add a pool as it is configured."""
        self.workers += [m.worker for m in members if m.worker not in self.workers]
        if model is None:
            self._unnamed.append([m.worker for m in members])
            return
        self._named.append((model, members))
        pool = self._pools.setdefault(model, Pool())
        for member in members:
            pool.workers.append(member.worker)
            if member.upstream_model is not None:
                member.worker.serves(model, member.upstream_model)

    def pool(self, model: str) -> Pool | None:
        """See `gateway.ports.Fleet`."""
        return self._pools.get(model)

    def models(self) -> list[str]:
        """The public names that can be asked for now."""
        return list(self._pools)

    def unknown(self, model: str) -> GatewayError:
        """See `gateway.ports.Fleet`."""
        silent = any(w.listed is None for workers in self._unnamed for w in workers)
        if silent:
            return NoWorker(
                f"The model {_shown(model)} isn't known yet: "
                "a worker hasn't told which models it serves.",
                param="model",
                retry_after_s=1.0,
            )
        names = sorted(self._pools)
        known = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        return UnknownModel(
            f"The model {_shown(model)} does not exist here. Available: {known or 'none'}.",
            param="model",
        )

    def learn(self, worker: Worker, cards: list[Card]) -> None:
        """Take in the models that `worker` lists; adapters name their base model as `parent`."""
        if worker.listed == cards:
            return
        worker.listed = cards
        names = [str(card["id"]) for card in cards]
        bases = [str(card["id"]) for card in cards if not card.get("parent")] or names
        for model, members in self._named:
            for member in members:
                if member.worker is worker and member.upstream_model is None:
                    self._match(model, worker, names, bases)
        for workers in self._unnamed:
            if worker in workers:
                self._follow(worker, names)

    def cards(self, created: int) -> list[Card]:
        """The models that can be asked for: a worker's own description of each, under our name."""
        cards: list[Card] = []
        for model, pool in self._pools.items():
            card: Card = {
                "id": model,
                "object": "model",
                "created": created,
                "owned_by": "tiergate",
            }
            for worker in pool.workers:
                upstream = worker.upstream_model(model)
                found = [c for c in worker.listed or () if c["id"] == upstream]
                if found:
                    card = {**card, **found[0], "id": model}
                    break
            cards.append(card)
        return cards

    def ready(self) -> bool:
        """Whether at least one model can be asked for at a worker that isn't left out."""
        return any(
            worker.listed is not None and worker.well
            for pool in self._pools.values()
            for worker in pool.workers
        )

    def _match(self, model: str, worker: Worker, names: list[str], bases: list[str]) -> None:
        """Find a worker's own name for a pool's model: the same name, or the only one there is."""
        self.complaints.pop(worker.name, None)
        if model in names:
            worker.serves(model, model)
        elif len(bases) == 1:
            worker.serves(model, bases[0])
        else:
            listed = ", ".join(bases[:NAMES_SHOWN]) or "nothing"
            self.complaints[worker.name] = (
                f"{worker.name} lists {listed}, not {model}: say which one with upstream_model"
            )

    def _follow(self, worker: Worker, names: list[str]) -> None:
        """Let an unnamed pool's worker serve just what it lists."""
        for name in names:
            pool = self._pools.setdefault(name, Pool())
            if worker not in pool.workers:
                pool.workers.append(worker)
        fixed = {model for model, _ in self._named}
        for name in [n for n in self._pools if n not in names and n not in fixed]:
            pool = self._pools[name]
            if worker in pool.workers:
                pool.workers.remove(worker)
                if not pool.workers:
                    del self._pools[name]


def _shown(model: str) -> str:
    return f"`{model[:100]}`"
