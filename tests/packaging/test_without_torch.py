"""Indexing and searching neither need torch nor import it where it is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("torch", "transformers", "sentence_transformers", "scipy", "sklearn", "pandas")
USING = [
    "index corpus.jsonl -i my.index",
    "query feline -i my.index -k 1",
    "query feline -i my.index --mode dense",
    "query --queries queries.jsonl -i my.index --mode bm25 --run bm25.run",
    "query --queries queries.jsonl -i my.index --run hybrid.run",
    "eval compare bm25.run hybrid.run --qrels qrels.tsv -m RR",
    "encode corpus.jsonl --output vectors.npy",
    "delete b -i my.index",
    "compact -i my.index",
    "info -i my.index",
    "verify -i my.index",
    "export out.jsonl -i my.index",
    "index corpus.jsonl -i weighted.index --model ::sbert-wk",
    "train meta corpus.jsonl --source ::lc:0,6 --source ::last4 --method svd -o meta",
    "index corpus.jsonl -i meta.index --model ./meta",
    "query feline -i meta.index -k 1",
    "inspect layers corpus.jsonl",
    "inspect words corpus.jsonl --set min-count=1",
    "eval layers pairs.tsv --max-layers 2",
    "eval sts pairs.tsv -e ::lc:0,6 -e ::last4",
]
PROGRAM = """
import json, sys
from cli.main import run
codes = {command: run(command.split()) for command in json.loads(sys.argv[1])}
import retriever.mcp.server, retriever.service.app
heavy = {"torch", "transformers"} & sys.modules.keys()
print(json.dumps([codes, sorted(heavy)]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A folder of links to the installed packages without those of `LEFT_OUT`."""
    folder = tmp_path_factory.mktemp("light")
    for place in filter(os.path.isdir, sys.path):
        if "-packages" in place:
            for path in Path(place).iterdir():
                if not path.name.startswith(LEFT_OUT) and not (folder / path.name).exists():
                    (folder / path.name).symlink_to(path)
    return folder


def _run(commands, folder, *options, **environment):
    (folder / "corpus.jsonl").write_text(
        '{"id": "a", "text": "The cat sat on the mat."}\n'
        '{"id": "b", "text": "Prices fell by 3.5% on Tuesday."}\n'
    )
    pairs = "score\tsentence1\tsentence2\n" + "".join(
        f"{score}\tThe cat sat.\tThe {name} sat.\n"
        for score, name in enumerate(["price", "dog", "tomcat", "cat"])
    )
    (folder / "pairs.tsv").write_text(pairs)
    (folder / "queries.jsonl").write_text('{"id": "1", "text": "a cat"}\n')
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    done = subprocess.run(
        [sys.executable, *options, "-c", PROGRAM, json.dumps(commands)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("installed", [True, False], ids=["torch", "no torch"])
def test_indexing_and_searching_import_no_torch(installed, light, tmp_path):
    path = os.pathsep.join(map(str, (ROOT, light)))
    alone = () if installed else ("-S",)
    stderr = _run(USING, tmp_path, *alone, PYTHONPATH=str(ROOT) if installed else path)
    codes, heavy = json.loads(stderr.splitlines()[-1])
    assert codes == dict.fromkeys(USING, 0), stderr
    assert heavy == []


def test_reranking_by_modules_in_bfloat16_imports_no_torch(light, tmp_path):
    pytest.importorskip("sentence_transformers")
    import torch
    from safetensors.torch import load_file, save_file

    from tests.retriever.encoders.architectures import save
    from tests.retriever.rerankers.test_module_chains import make_chain

    chain = make_chain(save("modernbert", tmp_path / "model"), tmp_path / "chain")
    for file in chain.rglob("*.safetensors"):
        halved = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}
        save_file(halved, file)
    commands = ["index corpus.jsonl -i my.index", "query cat -i my.index --rerank ./chain"]
    path = os.pathsep.join(map(str, (ROOT, light)))
    stderr = _run(commands, tmp_path, "-S", PYTHONPATH=path)
    assert json.loads(stderr.splitlines()[-1]) == [dict.fromkeys(commands, 0), []], stderr


def test_commands_that_need_torch_say_how_to_install_it(light, tmp_path):
    commands = [
        "index corpus.jsonl -i my.index --device cuda",
        "index corpus.jsonl -i my.index --model ::backend=torch",
        "train cross-encoder corpus.jsonl --output cross",
        "tune corpus.jsonl --output tuned",
        "train meta corpus.jsonl --source ::layers=1 --source ::layers=2 --method unsup --output m",
    ]
    path = os.pathsep.join(map(str, (ROOT, light)))
    *messages, last = _run(commands, tmp_path, "-S", PYTHONPATH=path).splitlines()
    assert set(json.loads(last)[0].values()) == {2}
    assert len(messages) == len(commands)
    remedy = 'not installed: pip install "layer-retriever[torch]"'
    assert all(line.endswith(remedy) for line in messages), messages


def test_unknown_architecture_names_the_ones_that_run_and_the_extra(light, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
    (model / "tokenizer.json").write_text("{}")
    header = b"{}      "
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    command = "index corpus.jsonl -i my.index --model ./model"
    path = os.pathsep.join(map(str, (ROOT, light)))
    message, last = _run([command], tmp_path, "-S", PYTHONPATH=path).splitlines()
    assert json.loads(last)[0] == {command: 2}
    assert "(the architecture llama, while bert, camembert, distilbert, modernbert" in message
    assert message.endswith(
        'needs torch, which is not installed: pip install "layer-retriever[torch]"'
    )
