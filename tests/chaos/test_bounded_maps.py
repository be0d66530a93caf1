"""Nothing that the gateway remembers grows with its clients: users, models, paths, ids."""

import gc
import json
import sys
from collections import deque
from collections.abc import Iterator

from gateway.app.run import Gateway
from gateway.settings import Log
from gateway.telemetry.log import MAX_KNOWN
from tests.support.client import connected, post
from tests.support.stand import CHAT, standing

CLIENTS = 3_000
OF_ONES_OWN = ("gateway.", "policies.", "cache.")
CONTAINERS = (dict, list, set, deque, tuple, bytearray)


def reachable(gateway: Gateway) -> Iterator[object]:
    """Every container that the gateway's objects and modules hold on to."""
    modules = [vars(m) for name, m in sys.modules.items() if name.startswith(OF_ONES_OWN)]
    found: dict[int, object] = {}
    todo: list[object] = [gateway, *modules]
    while todo:
        thing = todo.pop()
        if id(thing) in found:
            continue
        found[id(thing)] = thing
        if isinstance(thing, CONTAINERS):
            yield thing
        for next_one in gc.get_referents(thing):
            ours = type(next_one).__module__.startswith(OF_ONES_OWN)
            if ours or isinstance(next_one, CONTAINERS):
                todo.append(next_one)


def largest(gateway: Gateway) -> int:
    return max(len(container) for container in reachable(gateway))  # type: ignore[arg-type]


async def test_what_is_remembered_of_clients_is_bounded(monkeypatch):
    with open("/dev/null", "w") as nowhere:  # noqa: ASYNC230, PTH123
        monkeypatch.setattr(sys, "stdout", nowhere)
        async with standing(log=Log(requests=True)) as stand:
            gateway = stand.running.gateway
            before = largest(gateway)
            async with connected(stand.running.port) as client:
                for i in range(CLIENTS):
                    model = "m" if i % 2 else f"model-{i}"
                    body = json.dumps({"model": model, "user": f"user-{i}"}).encode()
                    path = CHAT if i % 5 else b"/v1/path-%d?x=%d" % (i, i)
                    ids = (b"x-request-id: id-%d" % i, b"authorization: Bearer sk-%d" % i)
                    client.send(post(body, *ids, path=path))
                    await client.response()
                    stand.worker.seen.clear()
            known = gateway.parts.log._known  # has its own bound
            assert 0 < len(known) <= MAX_KNOWN
            known.update({(i,): b"" for i in range(CLIENTS)})
            assert largest(gateway) >= CLIENTS  # so the walk does find what grows
            known.clear()
            gateway.parts.log.flush()  # lines wait for that
            assert largest(gateway) <= before + 50
