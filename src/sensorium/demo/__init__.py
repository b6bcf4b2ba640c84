"""`sensorium demo`: a page on which one shuffles an agent's senses while it acts.

| file | what it is |
|---|---|
| `messages.py` | what a visitor may say, and what a frame looks like |
| `senses.py` | wires and patches that can change while compiled code runs |
| `company.py` | an agent and its rival, compiled once for all visitors |
| `stage.py`, `on_host.py` | one episode of both, in a world on the device or on the host |
| `session.py` | what one visitor has before them: controls, a stage, frames; knows nothing of the web |
| `server.py`, `doors.py` | the page over HTTP, frames over a WebSocket; who is let in |
| `page/` | HTML, CSS and JavaScript, as they are |
"""
