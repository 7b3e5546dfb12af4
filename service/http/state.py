"""The parts of the application that handlers use, as FastAPI dependencies.

The dependencies are coroutines because FastAPI runs plain functions on a thread.
"""

from typing import Annotated

from fastapi import Depends, Request

from service.chains.service import ChainService
from service.engine.repository import Catalogue, ModelRepository
from service.http.metrics import Metrics
from service.inference import Inference


async def get_inference(request: Request) -> Inference:
    inference: Inference = request.app.state.inference
    return inference


async def get_chains(request: Request) -> ChainService:
    chains: ChainService = request.app.state.chains
    return chains


async def get_catalogue(request: Request) -> Catalogue:
    """Return the models served at this moment; a reload does not change the catalogue."""
    models: ModelRepository = request.app.state.models
    return models.catalogue


async def get_metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


InferenceUse = Annotated[Inference, Depends(get_inference)]
Chains = Annotated[ChainService, Depends(get_chains)]
Models = Annotated[Catalogue, Depends(get_catalogue)]
MetricsUse = Annotated[Metrics, Depends(get_metrics)]
