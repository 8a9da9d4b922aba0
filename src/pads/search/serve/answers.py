"""The shapes of the answers, for the documentation of the API."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Problem(BaseModel):
    error: str = Field(description="one sentence that says what is wrong")


class About(BaseModel):
    name: str
    run: bool = Field(description="whether there is a run to look at: /api/run")
    state: str = Field(description="ready (to be searched), training, building (the index) or failed")
    reason: str = Field(description="why it failed")
    doing: str = Field(description="what is being done, while building")
    done: int = Field(description="images so far")
    total: int
    max_bytes: int = Field(description="of an upload")
    max_pixels: int = Field(description="of an uploaded image")


class Label(BaseModel):
    label: str
    images: int


class Threshold(BaseModel):
    precision: float
    distance: float = Field(description="pairs nearer than this are the same item, with this precision")
    other: float | None = Field(
        description="pairs farther than this are not, with this precision; null if none are known"
    )


class Contents(BaseModel):
    name: str
    version: str = Field(description="changes with the contents")
    images: int
    dimension: int
    engine: str
    labels: list[Label]
    unlabelled: int
    thresholds: list[Threshold] = Field(description="empty where the index is not calibrated")
    promise: str = Field(description="what can be promised where a precision of 95 % cannot; empty where it can")


class ImageRow(BaseModel):
    row: int
    label: str | None
    path: str = Field(description="relative to the folder of the index")


class Sample(BaseModel):
    found: list[ImageRow]
    version: str = Field(description="of the index that the rows are of")


class Neighbour(ImageRow):
    distance: float = Field(description="Euclidean, between vectors of unit length: 0 to 2")
    same_item: bool | None = Field(description="with the asked precision; null if neither can be promised")
    mark: str | None = Field(
        description="the same in a word: same, unsure or other; null if no precision was asked for"
    )


class Found(BaseModel):
    query: ImageRow | None = Field(description="the image of the index that was searched with; null for an upload")
    neighbours: list[Neighbour] = Field(description="nearest first")
    threshold: float | None
    other_threshold: float | None
    embedding_ms: float
    search_ms: float
    version: str = Field(description="of the index that the rows are of")


class Embedded(BaseModel):
    vector: list[float] = Field(description="of unit length")


class MapAnswer(BaseModel):
    state: str = Field(description="computing, ready or failed")
    reason: str = Field(description="why it failed")
    images: int = Field(description="in the index; of very many, the map holds an even share")
    method: str | None = None
    rows: list[int] | None = None
    x: list[float] | None = None
    y: list[float] | None = None
    labels: list[int] | None = Field(None, description="numbers in the list of labels of /api/index; -1 for none")
