"""The HTTP server: the page, the API, sessions that survive a restart. Needs `samgraph[serve]`.

options.py      every limit, as one frozen value
app.py          the table of endpoints, and the application made of it
service.py      what the endpoints share: model, gate, store, metrics, jobs
gate.py         limits on running and waiting requests; clicks have priority over tracked frames
store.py        the folder of sessions
"""
