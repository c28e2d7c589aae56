"""The page without a server: a folder for any static host, the engine in the browser.

exporter.py    what `samgraph export --to web` writes
site.py        the files of the page, and the service worker that keeps them
weights.py     the weights of all graphs in one file, in 16 bits
runtime.py     where ONNX Runtime for browsers comes from
page/          what is not in `serve/page`: the engine, the transport to it, the samples
"""
