"""BertViz as a person has it: its pages, made anew for each text, served here with the scripts they ask for."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LAYERS = HEADS = 12
WIDTH = 384  # all-MiniLM-L12-v2
SEED = 86

# The address that BertViz's page asks, the npm package that has the file, and where it lies in it.
SCRIPTS = {
    "https://cdnjs.cloudflare.com/ajax/libs/require.js/2.3.6/require.min.js": (
        "requirejs@2.3.6",
        "require.js",
    ),
    "https://cdnjs.cloudflare.com/ajax/libs/d3/5.7.0/d3.min": ("d3@5.7.0", "dist/d3.min.js"),
    "https://cdnjs.cloudflare.com/ajax/libs/jquery/2.0.0/jquery.min": (
        "jquery@2.1.0",
        "dist/jquery.min.js",
    ),
}


def build_model(folder: Path) -> tuple[Any, Any]:
    """A BERT of 12 × 12 heads with seeded random weights, saved to the folder with MiniLM's tokenizer."""
    import torch
    from transformers import AutoModel, BertConfig

    from core.pretrained.load import load_minilm

    tokenizer = load_minilm().tokenizer
    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
    )
    model = AutoModel.from_config(config, attn_implementation="eager").eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def fetch_scripts(folder: Path) -> dict[str, bytes]:
    """The scripts of SCRIPTS by address, from npm; the program ends with a sentence where npm is not reachable."""
    folder.mkdir(parents=True)
    if shutil.which("npm") is None:
        sys.exit(
            "BertViz's pages need d3, jQuery and require.js, which come from npm; install Node.js to compare."
        )
    scripts = {}
    for address, (package, file) in SCRIPTS.items():
        packed = subprocess.run(
            ["npm", "pack", package, "--silent"], cwd=folder, capture_output=True, encoding="utf-8"
        )
        if packed.returncode:
            sys.exit(f"npm does not give {package}: {packed.stderr.strip().splitlines()[-1:]}")
        with tarfile.open(folder / packed.stdout.split()[-1]) as tar:
            member = tar.extractfile(f"package/{file}")
            assert member is not None
            scripts[address] = member.read()
    return scripts


class Peer:
    """What BertViz is asked for: a text, and one of its views of it."""

    def __init__(self, model: tuple[Any, Any], scripts: dict[str, bytes]) -> None:
        self.model, self.tokenizer = model
        self.scripts = {
            f"/{address.split('/')[5]}.js": (address, body) for address, body in scripts.items()
        }
        self.text, self.url, self.sent = "", "", 0

    def forward(self, text: str) -> tuple[Any, list[str]]:
        """The plain eager forward of a notebook."""
        import torch

        batch = self.tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            attentions = self.model(**batch, output_attentions=True).attentions
        return attentions, self.tokenizer.convert_ids_to_tokens(batch["input_ids"][0])

    def forward_ms(self, text: str, count: int) -> float:
        taken = []
        for _ in range(count + 1):
            start = time.perf_counter()
            self.forward(text)
            taken.append((time.perf_counter() - start) * 1000)
        return statistics.median(taken[1:])

    def page(self, view: str) -> bytes:
        """The view's page, with its scripts from here."""
        import bertviz

        attentions, tokens = self.forward(self.text)
        html = getattr(bertviz, view)(attentions, tokens, html_action="return").data
        for path, (address, _) in self.scripts.items():
            # require.js adds the ending of a module by itself.
            html = html.replace(
                address, path if address.endswith(".js") else path.removesuffix(".js")
            )
        body = f"<!doctype html><meta charset='utf-8'><body>{html}</body>".encode()
        self.sent = len(body)
        return body

    def answer(self, path: str) -> tuple[bytes, str]:
        if path in self.scripts:
            return self.scripts[path][1], "text/javascript"
        return self.page(path.removeprefix("/")), "text/html"


@contextmanager
def peer_server(model: tuple[Any, Any], folder: Path) -> Iterator[Peer]:
    """A server of BertViz's pages for `Peer.text`, on a port of its own."""
    peer = Peer(model, fetch_scripts(folder))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802, the name is http.server's
            known = self.path in peer.scripts or self.path in ("/model_view", "/head_view")
            body, kind = peer.answer(self.path) if known else (b"", "text/plain")
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    peer.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield peer
    finally:
        server.shutdown()
