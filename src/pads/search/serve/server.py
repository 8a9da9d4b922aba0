"""The application behind `pads serve`: a page, and the API that it uses."""

from __future__ import annotations

import errno
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, File, Header, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

import pads
from pads.data.formats import FORMATS_IN_WORDS
from pads.errors import UserError
from pads.runtime.reading import read_regular
from pads.search.serve import answers, pictures
from pads.search.serve.guard import COOKIE, EVERYWHERE, MAX_BYTES, Guard, is_loopback, pick_token
from pads.search.serve.patience import ImpatientProtocol
from pads.search.serve.searcher import Searcher
from pads.search.serve.served import Served

SCRIPTS = ("app.js", "docs.js", "dom.js", "map.js", "run.js", "search.js")
STATIC = {**dict.fromkeys(SCRIPTS, "text/javascript"), "style.css": "text/css", "icon.svg": "image/svg+xml"}
PAGES = {"/": "index.html", "/docs": "docs.html"}
MOST_NEIGHBOURS = 1000
QUICK_UP_TO = 50_000
"""Images: searching them takes less than handing the search to a thread among fifty requests."""
AN_HOUR = 3600
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A report is one file with all that it shows inside; it reaches nothing else, not even this server."""

Row = Annotated[int, Query(description="an image of the index, by its row")]
K = Annotated[int, Query(ge=1, le=MOST_NEIGHBOURS, description="how many neighbours")]
LabelName = Annotated[str | None, Query(description="search in this class alone")]
Precision = Annotated[
    float | None, Query(gt=0, le=1, description='marks neighbours as "same item" with this precision')
]
Upload = Annotated[UploadFile, File(description=FORMATS_IN_WORDS)]
Version = Annotated[
    str | None, Query(description="of /api/index: lets a browser keep the image, and refuses rows of another index")
]


def run_server(
    path: Path | str,
    *,
    host: str,
    port: int,
    images: Path | str | None = None,
    follow_links: bool = False,
    token: str | None = None,
    no_token: bool = False,
) -> None:
    """Opens what is to be served, says where it is, and answers until it is interrupted."""
    with bind_socket(host, port) as listener:
        token = pick_token(host, token, no_token)
        with closing(Served(path, images=images, follow_links=follow_links)) as served:
            for sentence in greeting(served, host, listener.getsockname()[1], token):
                print(sentence, flush=True)
            make_server(served, host, token).run(sockets=[listener])


def make_server(served: Served, host: str = "127.0.0.1", token: str | None = None) -> uvicorn.Server:
    app = make_app(served, host, token)
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # a broken upload would be a line in the terminal
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


def bind_socket(host: str, port: int) -> socket.socket:
    """Listening already: a port that is taken is noticed before anything is loaded."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port must lie between 0 and 65535 (0 for any free one), and is {port}.")
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        both = host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(address[:2], family=family, backlog=2048, dualstack_ipv6=both)
        # Every connection inherits it; without it, an answer in two parts waits 40 ms for the other side's word.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except socket.gaierror as error:
        raise UserError(f"--host {host}: this is not a name or an address of this machine.") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} of {host} is taken: give another --port, or 0 for any free one.") from error
        if error.errno == errno.EACCES:
            raise UserError(f"port {port} needs the rights of the administrator: give a --port above 1023.") from error
        raise UserError(
            f"--host {host}: {(error.strerror or str(error)).lower()}; give an address of this machine."
        ) from error


def greeting(served: Served, host: str, port: int, token: str | None = None) -> list[str]:
    shown = "localhost" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    fragment = "" if token is None else f"/#token={token}"
    sentences = [f"Serving {served.path} at http://{shown}:{port}{fragment} (Ctrl-C stops it)"]
    if served.state == "training":
        sentences.append("The run is still training: its curves move, and its test images can be searched at the end.")
    elif served.state == "building":
        sentences.append(
            f"Its test images are searched with an index in {served.index_path}, which is built if missing."
        )
    if token is not None:
        sentences.append("Whoever has this address, with its token, can see the images and search them.")
    elif not is_loopback(host):
        sentences.append("Whoever reaches this port can see the images and search them: there is no password.")
    return sentences


def make_app(served: Served, host: str = "127.0.0.1", token: str | None = None) -> FastAPI:
    problems: dict[int | str, dict[str, Any]] = {"4XX": {"model": answers.Problem}, 422: {"model": answers.Problem}}
    app = FastAPI(
        title="pads serve",
        version=pads.__version__,
        description="Search images by similarity.",
        docs_url=None,  # FastAPI's own pages load their scripts from elsewhere
        redoc_url=None,
        responses=problems,
    )
    app.add_middleware(Guard, host=host, token=token)
    add_errors(app)
    add_pages(app, served)
    add_api(app, served)
    add_images(app, served)
    if token is not None:
        add_token(app, token)
    return app


# -- the API -----------------------------------------------------------------------------------------------------------


def add_api(app: FastAPI, served: Served) -> None:
    @app.get("/api/about")
    def about() -> answers.About:
        """What is being served, and whether it can be searched yet."""
        return answers.About(**served.about(), max_bytes=MAX_BYTES, max_pixels=pictures.MAX_PIXELS)

    @app.get("/api/index")
    def index() -> answers.Contents:
        """What is in the index."""
        with borrow(served) as searcher:
            return answers.Contents(**searcher.contents())

    @app.get("/api/search")
    async def search_by_row(
        row: Row, k: K = 24, label: LabelName = None, precision: Precision = None, v: Version = None
    ) -> answers.Found:
        """The nearest neighbours of an image of the index, without itself."""
        async with borrow_without_waiting(served) as searcher:
            searcher.check_version(v)
            query = answers.ImageRow(**searcher.about(row))
            found = await time_search(searcher, searcher.near_row, row, k, label, precision)
            return answers.Found(query=query, embedding_ms=0, version=searcher.version, **found)

    @app.post("/api/search")
    async def search_by_upload(
        image: Upload, k: K = 24, label: LabelName = None, precision: Precision = None
    ) -> answers.Found:
        """The nearest neighbours of an uploaded image (multipart, field `image`)."""
        async with borrow_without_waiting(served) as searcher:
            start = time.perf_counter()
            searcher.check_label(label)
            vector_D = await searcher.embedder.embed(await image.read())
            embedding_ms = ms_since(start)
            found = await time_search(searcher, searcher.near, vector_D, k, label, precision)
            return answers.Found(query=None, embedding_ms=embedding_ms, version=searcher.version, **found)

    @app.get("/api/sample")
    def sample(k: K = 24, label: LabelName = None, seed: Annotated[int, Query(ge=0)] = 0) -> answers.Sample:
        """Images of the index at random, to begin with."""
        with borrow(served) as searcher:
            found = [answers.ImageRow(**each) for each in searcher.sample(k, label, seed)]
            return answers.Sample(found=found, version=searcher.version)

    @app.post("/api/embed")
    async def embed(image: Upload) -> answers.Embedded:
        """The vector of an uploaded image (multipart, field `image`)."""
        async with borrow_without_waiting(served) as searcher:
            vector_D = await searcher.embedder.embed(await image.read())
            return answers.Embedded(vector=vector_D.tolist())

    @app.get("/api/map", response_model=answers.MapAnswer)
    def the_map() -> Response:
        """The index laid out in the plane: made once in the background, kept beside the index."""
        with borrow(served) as searcher:
            return plain_json(searcher.layout())

    @app.get("/api/run")
    def run(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        """Curves, sampling distribution and figures of the run; 304 while nothing has changed since the ETag."""
        if served.run is None:
            raise HTTPException(404, "an index is being served, not a run.")
        answer = served.run.answer()
        tag = f'"{answer["version"]}"'
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return plain_json(answer, ETag=tag)


def add_images(app: FastAPI, served: Served) -> None:
    images: dict[int | str, dict[str, Any]] = {200: {"content": {"image/*": {}}, "description": "an image"}}

    @app.get("/api/image/{row}", response_class=Response, responses=images)
    def image(row: int, v: Version = None) -> Response:
        """The image of a row as it is on disk (as PNG where browsers could not show it)."""
        with borrow(served) as searcher:
            searcher.check_version(v)
            data, media_type = pictures.show_whole(searcher.picture(row))
            return Response(data, media_type=media_type, headers=cache_headers(v, searcher.version))

    @app.get("/api/thumbnail/{row}", response_class=Response, responses=images)
    def thumbnail(row: int, v: Version = None) -> Response:
        """The image of a row as a JPEG of at most 256 pixels on a side."""
        with borrow(served) as searcher:
            searcher.check_version(v)
            return Response(
                searcher.thumbnail(row), media_type="image/jpeg", headers=cache_headers(v, searcher.version)
            )


def add_token(app: FastAPI, token: str) -> None:
    @app.post("/api/token", status_code=204)
    def keep_token() -> Response:
        """Give the browser that has sent the token a cookie with it: images cannot be asked for with a header."""
        answer = Response(status_code=204)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return answer


@contextmanager
def borrow(served: Served) -> Iterator[Searcher]:
    """Borrow the searcher for a request; after a rebuild of the index, the new one."""
    if served.is_rebuilt():
        served.reload()
    with served.lend() as searcher:
        yield searcher


@asynccontextmanager
async def borrow_without_waiting(served: Served) -> AsyncIterator[Searcher]:
    """Borrow it where everybody would wait for an index that is being opened."""
    if served.is_rebuilt():
        await run_in_threadpool(served.reload)
    with served.lend() as searcher:
        yield searcher


async def time_search(searcher: Searcher, search: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What was found, and how long it took: here at once in a millisecond or two, among very many images in a thread."""
    start = time.perf_counter()
    is_quick = len(searcher.paths) <= QUICK_UP_TO
    found = search(*arguments) if is_quick else await run_in_threadpool(search, *arguments)
    return {**found, "search_ms": ms_since(start)}


def cache_headers(asked: str | None, version: str) -> dict[str, str]:
    """A browser may keep what was asked for by its version: another index gives other addresses."""
    return {"Cache-Control": f"private, max-age={AN_HOUR}, immutable"} if asked == version else {}


def plain_json(value: Any, **headers: str) -> Response:
    """Long lists of numbers, straight to JSON."""
    return Response(json.dumps(value, allow_nan=False), media_type="application/json", headers=headers)


def ms_since(start: float) -> float:
    return round(1000 * (time.perf_counter() - start), 2)


# -- the pages ---------------------------------------------------------------------------------------------------------


def add_pages(app: FastAPI, served: Served) -> None:
    files = resources.files("pads.search.serve").joinpath("static")

    def page(name: str) -> Any:
        return lambda: HTMLResponse(files.joinpath(name).read_text("utf-8"))

    def asset(name: str) -> Any:
        return lambda: Response(files.joinpath(name).read_bytes(), media_type=STATIC[name])

    for address, name in PAGES.items():
        app.get(address, include_in_schema=False)(page(name))
    for name in STATIC:
        app.get(f"/static/{name}", include_in_schema=False)(asset(name))

    @app.get("/report", include_in_schema=False)
    def report() -> HTMLResponse:
        if served.run is None or not served.run.report.is_file():
            raise HTTPException(404, "there is no report; `pads report RUN` writes one.")
        return HTMLResponse(read_regular(served.run.report), headers={"Content-Security-Policy": REPORT_POLICY})


# -- errors ------------------------------------------------------------------------------------------------------------


def add_errors(app: FastAPI) -> None:
    """Every error is {"error": "a sentence"}."""

    @app.exception_handler(HTTPException)
    def refuse(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def refuse_request(_: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"error": "; ".join(map(sentence_of, error.errors())) + "."}, 422)

    @app.exception_handler(UserError)
    def refuse_input(_: Request, error: UserError) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(Exception)
    def own_mistake(_: Request, error: Exception) -> Response:  # uvicorn prints where it happened
        return JSONResponse({"error": "something went wrong here; the terminal of `pads serve` says more."}, 500)


def sentence_of(error: dict[str, Any]) -> str:
    *_, name = error["loc"]
    return f"{name}: {error['msg'][0].lower()}{error['msg'][1:]}"
