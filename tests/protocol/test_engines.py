"""The file of engines: what it may say, and what is said of mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.protocol.engines import NEVER, PORT, EngineSpec, model_names, read_engines

CMD = 'cmd = "serve --port {port}"'


def written(directory: Path, text: str) -> Path:
    path = directory / "engines.toml"
    path.write_text(text)
    return path


def test_a_file(tmp_path: Path) -> None:
    specs = read_engines(
        written(
            tmp_path,
            """
            [llama]
            cmd = "llama-server -m 'a model.gguf' --port {port} --json '{}'"
            models = ["llama-3", "l"]
            ttl = "never"
            [small]
            cmd = ["serve", "--port={port}", "--device", "cuda:{gpu}"]
            as = "org/small"
            pin = true
            cwd = "below"
            start_timeout = 90
            """,
        )
    )
    env = {"OLLAMA_HOST": "127.0.0.1:{port}", "CUDA_VISIBLE_DEVICES": "{gpu}"}
    assert EngineSpec("ollama serve", env=env).variables(5) == {
        "OLLAMA_HOST": "127.0.0.1:5",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    llama, small = specs["llama"], specs["small"]
    assert llama.argv(80) == ["llama-server", "-m", "a model.gguf", "--port", "80", "--json", "{}"]
    assert model_names("llama", llama) == ["llama-3", "l"] and model_names("small", small) == ["small"]
    assert (llama.ttl_us, small.ttl_us, small.start_us) == (None, None, 90_000_000)
    assert small.upstream == "org/small" and small.argv(81) == ["serve", "--port=81", "--device", "cuda:0"]
    assert read_engines(written(tmp_path, "# none yet")) == {}
    assert (llama.cwd, small.cwd) == (str(tmp_path), str(tmp_path / "below"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a", "is not TOML"),
        ("a = 1", "engine a: a is not a table"),
        (f"['a b']\n{CMD}", "'a b' is not a name"),
        ("[a]", "engine a: it has no cmd, the command that starts it"),
        ('[a]\ncmd = ""', "engine a: cmd: there is no command"),
        ('[a]\ncmd = "serve"', "engine a: cmd: it does not say where to listen: write {port}"),
        ('[a]\ncmd = "serve \'{port}"', "engine a: cmd: No closing quotation"),
        (f"[a]\n{CMD}\nmodles = ['b']", "unknown key 'modles'; did you mean 'models'?"),
        (f"[a]\n{CMD}\npriority = 0", "engine a: priority: expected `int` >= 1"),
        (f"[a]\n{CMD}\npin = 1", "engine a: pin: expected `bool`, got `int`"),
        (f"[a]\n{CMD}\nttl = 'soon'", "engine a: ttl: 'soon' is not a time"),
        (f"[a]\n{CMD}\nttl = '0s'", "engine a: ttl: '0s' is too short"),
        (f"[a]\n{CMD}\nstart_timeout = '400d'", "engine a: start_timeout: '400d' is more than a year"),
        (f"[a]\n{CMD}\nmodels = ['']", "engine a: models: '' is not a name of a model"),
        (f"[a]\n{CMD}\nhealth = 'health'", "engine a: health: 'health' is not a path"),
        (f"[a]\n{CMD}\nkeys = '~nobody-of-this-name/keys'", "'~nobody-of-this-name/keys': no such home"),
        (f"[a]\n{CMD}\ncwd = '~nobody-of-this-name'", "engine a: cwd: '~nobody-of-this-name': no such home directory"),
        (f"[a]\n{CMD}\nenv = {{'A=' = 'b'}}", "engine a: env: names of variables"),
        (f"[a]\n{CMD}\nmodels = {[str(number) for number in range(1001)]}", "has 1001 models, more than 1000"),
        (f"[a]\n{CMD}\n[b]\n{CMD}\nmodels = ['a']", "engines a and b both answer to the model 'a'"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_engines(written(tmp_path, text))
    assert says in str(refused.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_engines(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_engines(tmp_path)
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is not TOML"):
        read_engines(tmp_path / "odd.toml")


def _filled(word: str) -> str:
    return word.replace("{gpu}", "0").replace(PORT, "1")


@given(st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1), min_size=1))
def test_words_of_a_command_stay(words: list[str]) -> None:
    assert EngineSpec([*words, PORT]).argv(1) == [*(_filled(word) for word in words), "1"]
    assert EngineSpec([*words], ttl=NEVER).ttl_us is None


@given(st.lists(st.sampled_from(["serve", "--port={port}", "{port}", "{port}:{port}", "a{gpu}{port}b"]), min_size=1))
def test_a_port_is_found_again(words: list[str]) -> None:
    spec = EngineSpec(words)
    found = spec.port_of(spec.argv(8123))
    assert found == 8123 if {*words} & {"--port={port}", "{port}", "a{gpu}{port}b"} else found is None
    assert spec.port_of([*spec.argv(8123), "more"]) is None
