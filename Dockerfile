# Three images: `cpu` (last, so that it is the default), `gpu` and `train`. See docs/deployment.md.
# BASE_IMAGE can be any image with python3 (3.11 or newer) and venv. An environment runs only on the
# base on which it was created. deploy/build-image builds the CPU image without a Docker engine.

ARG BASE_IMAGE=python:3.12-slim-bookworm
# The pinned onnxruntime-gpu is linked with CUDA 13 (libcudart.so.13, libcublas.so.13) and cuDNN 9. CUDA
# 13.0 accepts the oldest driver on the host.
ARG CUDA_BASE_IMAGE=nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04

# pip is not part of the environment that it fills. Bytecode is compiled here because the user of the
# image cannot write it; unchecked-hash, because moving an image may reset timestamps; not for packages
# that neither service nor trainer imports.
ARG INSTALL="/opt/tools/bin/python -m pip --python /opt/venv/bin/python install --no-cache-dir --no-compile"
ARG COMPILE="/opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash -x /(tests|testing/_internal|transformers|quantization|f2py)/ /opt/venv/lib"

# The wheel of the package, for all images; and the models, readable whatever the umask of the host.
FROM ${BASE_IMAGE} AS package
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN python3 -m venv /opt/tools
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY localmoments localmoments
COPY service service
COPY trainer trainer
RUN /opt/tools/bin/python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
COPY models /models
RUN chmod -R a+rX /models


# The environments. An empty package with our pyproject.toml installs the pinned dependencies first, so
# that a change of the source does not install them again. The real package follows.
FROM ${BASE_IMAGE} AS environment
RUN python3 -m venv /opt/tools && python3 -m venv --without-pip /opt/venv
WORKDIR /src
COPY pyproject.toml constraints.txt ./
RUN mkdir localmoments service trainer \
 && touch localmoments/__init__.py service/__init__.py trainer/__init__.py README.md LICENSE

FROM environment AS environment-cpu
ARG INSTALL
ARG COMPILE
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN $INSTALL --constraint constraints.txt '.[serve,cpu]'
COPY --from=package /wheels /wheels
RUN $INSTALL --no-deps --force-reinstall /wheels/*.whl && $COMPILE

FROM environment AS environment-train
ARG INSTALL
ARG COMPILE
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN $INSTALL --constraint constraints.txt '.[train,cpu]'
COPY --from=package /wheels /wheels
RUN $INSTALL --no-deps --force-reinstall /wheels/*.whl && $COMPILE

FROM ${CUDA_BASE_IMAGE} AS cuda
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/*

# constraints.txt has no onnxruntime-gpu, so it gets the tested version of onnxruntime.
FROM cuda AS environment-gpu
ARG INSTALL
ARG COMPILE
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
COPY --from=environment /src /src
WORKDIR /src
RUN python3 -m venv /opt/tools && python3 -m venv --without-pip /opt/venv
RUN sed -i 's/^onnxruntime==/onnxruntime-gpu==/' constraints.txt \
 && $INSTALL --constraint constraints.txt '.[serve,gpu]'
COPY --from=package /wheels /wheels
RUN $INSTALL --no-deps --force-reinstall /wheels/*.whl && $COMPILE


# The images. The user is a number, so that Kubernetes can check that it is not root. The root file
# system may be read-only: only the embedded store writes, and only without Redis. There is no VOLUME,
# because it would leave an unnamed volume behind each container that uses Redis. onnxruntime sends
# telemetry unless ORT_DISABLE_TELEMETRY is set before it is loaded.
FROM ${BASE_IMAGE} AS runtime
RUN groupadd --gid 10001 localmoments \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /srv/localmoments localmoments \
 && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/localmoments
WORKDIR /srv/localmoments
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1

FROM runtime AS train
COPY --from=environment-train /opt/venv /opt/venv
ENV MPLCONFIGDIR=/tmp/matplotlib
USER 10001:10001
ENTRYPOINT ["localmoments"]

FROM cuda AS gpu
RUN groupadd --gid 10001 localmoments \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /srv/localmoments localmoments \
 && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/localmoments
WORKDIR /srv/localmoments
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1
COPY --from=environment-gpu /opt/venv /opt/venv
COPY --from=package /models models
COPY deploy/healthcheck.py ./
ENV LOCALMOMENTS_HOST=0.0.0.0 \
    LOCALMOMENTS_MODELS=/srv/localmoments/models \
    LOCALMOMENTS_STORE_FOLDER=/var/lib/localmoments
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "/srv/localmoments/healthcheck.py", "/healthz"]
ENTRYPOINT ["localmoments", "serve"]

# The health check tests liveness, not readiness: Swarm restarts unhealthy containers, and a restart does
# not bring Redis back. The entry point is not a shell, so SIGTERM reaches the service.
FROM runtime AS cpu
COPY --from=environment-cpu /opt/venv /opt/venv
COPY --from=package /models models
COPY deploy/healthcheck.py ./
ENV LOCALMOMENTS_HOST=0.0.0.0 \
    LOCALMOMENTS_MODELS=/srv/localmoments/models \
    LOCALMOMENTS_STORE_FOLDER=/var/lib/localmoments
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "/srv/localmoments/healthcheck.py", "/healthz"]
ENTRYPOINT ["localmoments", "serve"]
