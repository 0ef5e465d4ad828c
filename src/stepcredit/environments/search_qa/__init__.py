"""Search QA: answer questions in several turns, with a retriever at hand."""
