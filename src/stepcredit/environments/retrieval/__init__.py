"""Lexical retrieval shared by environments: English analysis and BM25 as Lucene computes them."""
