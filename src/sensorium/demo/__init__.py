"""`sensorium demo`: a page on which users rewire an agent's observations while it acts.

| file | what is in it |
|---|---|
| `messages.py` | messages of the page, and the format of frames |
| `rewiring.py` | perturbations whose state changes while compiled code runs |
| `actors.py` | an agent and its baseline, compiled once for all connections |
| `episode.py`, `host_episode.py` | one episode of both, in a world on the device or on the host |
| `session.py` | the controls, episode and frames of one user; independent of the network |
| `server.py`, `connection.py` | the page over HTTP, frames over a WebSocket |
| `security.py`, `upload.py` | checks of requests and of uploaded images |
| `page/` | HTML, CSS and JavaScript, served as they are |
| `static_export.py`, `static/` | the demo as plain files, without a server |
"""
