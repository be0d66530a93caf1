"""A file or a command line to settings: what is read, and the way back."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.addresses import worker_url
from gateway.config import ConfigError, check_files, from_urls, load, load_file, override, render
from gateway.settings import (
    Limits,
    Listen,
    Log,
    PoolSettings,
    Settings,
    Timeouts,
    Tls,
    WorkerSettings,
)

SMALLEST = "pools: {chat: {workers: [http://gpu1:8000]}}\n"
ONE_POOL = (PoolSettings(name="chat", workers=(WorkerSettings(url="http://gpu1:8000"),)),)

EVERYTHING = """
listen: 0.0.0.0:8443
data: /var/lib/tiergate
auth: none
tls: {cert: /etc/tls/chain.pem, key: /etc/tls/key.pem}
pools:
  chat:
    model: llama-3.1-8b
    workers:
      - http://10.0.0.5:8000/v1
      - url: https://10.0.0.6:8000/prefix/v1/
        upstream_model: meta-llama/Llama-3.1-8B-Instruct
        api_key: ${WORKER_KEY}
        engine: vllm
  embeddings:
    workers: ["http://[::1]:9000"]
timeouts:
  connect: 2s
  first_byte: 1m
  between_bytes: 0
  total: 1.5h
  worker_idle: 500ms
  request_head: ${HEAD_TIMEOUT:-20s}
  request_body: 1m
  client_idle: 0
  drain_delay: 5s
  drain_timeout: 30s
limits: {body: 8MB, body_memory: 512MiB, connections: "${CONNECTIONS:-100}"}
log: {requests: off}
"""


def test_what_goes_without_saying():
    assert load(SMALLEST, "gateway.yaml", {}) == Settings(
        pools=ONE_POOL,
        listen=Listen("127.0.0.1", 8080),
        data="./tiergate-data",
        auth=None,
        tls=None,
        timeouts=Timeouts(
            connect_s=5,
            first_byte_s=600,
            between_bytes_s=120,
            total_s=3600,
            worker_idle_s=4,
            request_head_s=10,
            request_body_s=120,
            client_idle_s=75,
            drain_delay_s=0,
            drain_timeout_s=120,
        ),
        limits=Limits(body_bytes=32 * 1024**2, body_memory_bytes=1024**3, connections=16384),
        log=Log(requests=True),
    )


def test_every_key_is_read():
    assert load(EVERYTHING, "gateway.yaml", {"WORKER_KEY": "sk-secret"}) == Settings(
        pools=(
            PoolSettings(
                name="chat",
                model="llama-3.1-8b",
                workers=(
                    WorkerSettings(url="http://10.0.0.5:8000"),
                    WorkerSettings(
                        url="https://10.0.0.6:8000/prefix",
                        upstream_model="meta-llama/Llama-3.1-8B-Instruct",
                        api_key="sk-secret",
                        engine="vllm",
                    ),
                ),
            ),
            PoolSettings(name="embeddings", workers=(WorkerSettings(url="http://[::1]:9000"),)),
        ),
        listen=Listen("0.0.0.0", 8443),  # noqa: S104  what the operator wrote
        data="/var/lib/tiergate",
        auth="none",
        tls=Tls("/etc/tls/chain.pem", "/etc/tls/key.pem"),
        timeouts=Timeouts(
            connect_s=2,
            first_byte_s=60,
            between_bytes_s=0,
            total_s=5400,
            worker_idle_s=0.5,
            request_head_s=20,
            request_body_s=60,
            client_idle_s=0,
            drain_delay_s=5,
            drain_timeout_s=30,
        ),
        limits=Limits(body_bytes=8 * 1024**2, body_memory_bytes=512 * 1024**2, connections=100),
        log=Log(requests=False),
    )


def test_a_key_without_a_value_counts_as_left_out():
    text = SMALLEST + "timeouts:\nlimits:\n  body:\ntls:\nauth: ~\n"
    assert load(text, "gateway.yaml", {}) == Settings(pools=ONE_POOL)


def test_settings_are_frozen_and_do_not_show_keys():
    settings = load(EVERYTHING, "gateway.yaml", {"WORKER_KEY": "sk-secret"})
    with pytest.raises(AttributeError):
        settings.data = "elsewhere"
    assert "sk-secret" not in repr(settings)
    assert "api_key=(hidden)" in repr(settings)


def test_the_same_urls_in_two_pools_are_one_server_with_two_models():
    text = "pools: {a: {model: a, workers: [http://x]}, b: {model: b, workers: [http://x]}}"
    assert [pool.model for pool in load(text, "gateway.yaml", {}).pools] == ["a", "b"]


def test_urls_alone_make_one_pool():
    assert from_urls(["http://gpu1:8000", "http://gpu2:8000/v1/"]) == Settings(
        pools=(
            PoolSettings(
                name="default",
                workers=(
                    WorkerSettings(url="http://gpu1:8000"),
                    WorkerSettings(url="http://gpu2:8000"),
                ),
            ),
        )
    )


def test_the_command_line_may_say_where_to_listen_and_keep_files():
    settings = from_urls(["http://gpu1"], listen=":9000", data="/srv/x", auth="none")
    assert settings.listen == Listen("", 9000)
    assert settings.data == "/srv/x"
    assert settings.auth == "none"


def test_every_problem_of_a_command_line_is_told_at_once():
    urls = ["http://a", "http://A:80/v1", "gpu:80", "http://user:secret@h"]
    with pytest.raises(ConfigError) as refusal:
        from_urls(urls, listen="0.0.0.0:80", data="")
    told = str(refusal.value).splitlines()
    assert [line.rpartition(": ")[0] for line in told[:-1]] == [
        "command line  --data",
        "command line  URL 3 = gpu:80",
        "command line  URL 4 = http://***@h",
        (
            "command line  --listen = 0.0.0.0:80: is beyond loopback, "
            "where whoever connects may use the workers"
        ),
        "command line  URL 2 = http://A:80/v1",
    ]
    assert "is the same worker as no. 1" in told[4]
    assert told[-1] == "5 problems; nothing was loaded"


def test_a_command_line_without_urls_is_refused():
    with pytest.raises(ConfigError, match="name at least one worker") as refusal:
        from_urls([])
    assert str(refusal.value).endswith("\n1 problem; nothing was loaded")


def test_the_command_line_overrides_a_file():
    settings = load(EVERYTHING, "gateway.yaml", {"WORKER_KEY": "sk-secret"})
    assert override(settings) == settings
    changed = override(settings, listen="9000", data="/srv/x")
    assert changed.listen == Listen("127.0.0.1", 9000)
    assert changed.data == "/srv/x"
    assert changed.pools == settings.pools


def test_an_override_has_to_make_sense_together_with_the_file():
    settings = load(SMALLEST, "gateway.yaml", {})
    with pytest.raises(ConfigError, match=r"--listen = :80: is beyond loopback"):
        override(settings, listen=":80")
    assert override(settings, listen=":80", auth="none").auth == "none"


def test_the_rendered_file_is_short_and_readable():
    settings = from_urls(["http://gpu1:8000", "http://[::1]:8000"], listen=":8080", auth="none")
    assert render(settings) == (
        'listen: ":8080"\n'
        "data: ./tiergate-data\n"
        "auth: none\n"
        "pools:\n"
        "  default:\n"
        "    workers:\n"
        "      - http://gpu1:8000\n"
        '      - "http://[::1]:8000"\n'
    )


def test_a_rendered_file_asks_for_keys_by_variables():
    settings = load(EVERYTHING, "gateway.yaml", {"WORKER_KEY": "sk-secret"})
    rendered = render(settings)
    assert "sk-secret" not in rendered
    assert load(rendered, "gateway.yaml", {"WORKER_KEY_1": "sk-secret"}) == settings


_printable = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
_words = _printable | st.sampled_from(
    ["no", "null", "~", "1", "1.5", "<<", "${X}", "$${X}", "a: b"]
)
_times = st.integers(0, 10**12).map(lambda microseconds: microseconds / 1_000_000)
_urls = st.sampled_from(["a", "b:8000", "[::1]:1", "c/p", "10.0.0.5:80", "d/a%20b"]).map(
    lambda rest: worker_url(f"http://{rest}")
)
_workers = st.builds(
    WorkerSettings,
    url=_urls,
    upstream_model=st.none() | _words,
    api_key=st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    engine=st.sampled_from(["auto", "vllm", "tgi"]),
)
_pools = st.builds(
    PoolSettings,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
    | st.sampled_from(["null", "true", "1", "1e3", "n", "0x1"]),
    model=st.none() | _words,
    workers=st.lists(_workers, min_size=1, max_size=3, unique_by=lambda w: w.url).map(tuple),
)
_timeouts = st.builds(Timeouts, **dict.fromkeys(Timeouts.__struct_fields__, _times)).filter(
    lambda timeouts: timeouts.connect_s > 0
)
_limits = st.builds(
    lambda body, more, connections: Limits(
        body_bytes=body, body_memory_bytes=body + more, connections=connections
    ),
    st.integers(1, 2**50),
    st.integers(0, 2**50),
    st.integers(1, 10**6),
)


@given(
    st.builds(
        Settings,
        pools=st.lists(_pools, min_size=1, max_size=3, unique_by=lambda pool: pool.name)
        .filter(lambda pools: len(models := [p.model for p in pools if p.model]) == len({*models}))
        .map(tuple),
        listen=st.sampled_from(["127.0.0.1:1", ":0", "[::1]:8", "h:65535"]).map(
            lambda text: Listen(text.rpartition(":")[0].strip("[]"), int(text.rpartition(":")[2]))
        ),
        data=_words,
        auth=st.just("none"),
        tls=st.none() | st.builds(Tls, _words, _words),
        timeouts=_timeouts,
        limits=_limits,
        log=st.builds(Log, requests=st.booleans()),
    )
)
def test_a_rendered_file_loads_back_to_equal_settings(settings):
    keys = [w.api_key for pool in settings.pools for w in pool.workers if w.api_key is not None]
    env = {f"WORKER_KEY_{n}": key for n, key in enumerate(dict.fromkeys(keys), start=1)}
    assert load(render(settings), "gateway.yaml", env) == settings


def test_a_file_is_loaded_with_the_environment_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("GPU", "gpu7")
    file = tmp_path / "gateway.yaml"
    file.write_text("pools: {chat: {workers: ['http://${GPU}:8000']}}", encoding="utf-8")
    assert load_file(str(file)).pools[0].workers[0].url == "http://gpu7:8000"


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"x\.yaml: can't be read: no such file or directory\n1 p"
    ):
        load_file(str(tmp_path / "x.yaml"))
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"data: \xe9")
    with pytest.raises(ConfigError, match="must be text in UTF-8"):
        load_file(str(file))


def test_files_are_checked_apart_from_loading(tmp_path):
    (tmp_path / "cert.pem").write_text("no certificate")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    settings = Settings(pools=ONE_POOL, tls=Tls(cert, key))
    assert [str(problem) for problem in check_files(settings, "gateway.yaml")] == [
        f"gateway.yaml  tls.key = {key}: must be a file that can be read"
    ]
    (tmp_path / "key.pem").write_text("no key")
    (problem,) = check_files(Settings(pools=ONE_POOL, tls=Tls(cert, key)))
    assert "must be PEM files that belong together" in problem.expected


def test_a_start_without_a_file_loads_neither_pydantic_nor_yaml():
    program = (
        "import sys\n"
        "from gateway.config import from_urls, render\n"
        "render(from_urls(['http://gpu1']))\n"
        "print(sorted({'pydantic', 'yaml', 'gateway.shape'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert done.stdout == "[]\n"
