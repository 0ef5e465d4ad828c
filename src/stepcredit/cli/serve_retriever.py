"""``stepcredit serve-retriever``: a retrieval server for stacks that speak Search-R1's protocol."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stepcredit.core.errors import missing_extra
from stepcredit.environments.search_qa.corpus import read_corpus
from stepcredit.environments.search_qa.remote import TOKEN_VARIABLE
from stepcredit.environments.search_qa.retrievers import CorpusRetriever, Kind


def serve_retriever(
    corpus: Path, *, retriever: Kind = "bm25", index: Path | None = None, host: str = "127.0.0.1", port: int = 8000
) -> None:
    """Serve a corpus to training stacks that ask a Search-R1 server, until Ctrl-C.

    Only this machine can connect. To let others in, name a --host and set the environment variable
    STEPCREDIT_RETRIEVER_TOKEN; they must send it as `Authorization: Bearer TOKEN`.

    Args:
        corpus: JSON lines with `id` and `contents`, gzipped or not.
        retriever: how passages are found: by their words, or by sentence embeddings.
        index: folder for the index on disk, built where it is absent; without it the corpus is indexed in memory.
        host: address to listen on.
        port: 0 for a free one.
    """
    try:
        from stepcredit.environments.search_qa.server import serve
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "serve", "Serving a retriever") from None

    def load() -> CorpusRetriever:
        if index is None:
            return CorpusRetriever.in_memory(read_corpus(corpus), retriever)
        return CorpusRetriever.on_disk(corpus, index, retriever)

    serve(
        load,
        host=host,
        port=port,
        token=os.environ.get(TOKEN_VARIABLE) or None,
        ready=lambda url, count: print(f"Serving {count} passages at {url}; Ctrl-C stops it.", file=sys.stderr),
    )
