# The images: `cpu` (the default, hence last), `gpu` and `train`. How to use them: docs/deployment.md.
# A base is any image whose python3 (3.11 or newer) can make virtual environments; an environment runs
# on the base that it was made on. Without a Docker engine: deploy/build-image.

ARG BASE_IMAGE=python:3.12-slim-bookworm
# The pinned onnxruntime-gpu is linked with libcudart.so.13 and libcublas.so.13 and wants cuDNN 9 (see
# its wheel's metadata): CUDA 13, and 13.0 is the one that asks least of the host's driver.
ARG CUDA_BASE_IMAGE=nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04

# pip stays outside of the environment that it fills. Bytecode is compiled while building, since the
# one who runs it may write nothing: without timestamps, which moving an image may reset, and not for
# what neither service nor trainer imports.
ARG INSTALL="/opt/tools/bin/python -m pip --python /opt/venv/bin/python install --no-cache-dir --no-compile"
ARG COMPILE="/opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash -x /(tests|testing/_internal|transformers|quantization|f2py)/ /opt/venv/lib"

# The package as a wheel, the same for all; and the models, made readable whatever your umask is.
FROM ${BASE_IMAGE} AS package
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN python3 -m venv /opt/tools
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY trainer trainer
RUN /opt/tools/bin/python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
COPY models /models
RUN chmod -R a+rX /models


# Environments. First the pinned dependencies, by way of an empty package with our pyproject.toml, so
# that a change of the source does not install them again; then the package.
FROM ${BASE_IMAGE} AS environment
RUN python3 -m venv /opt/tools && python3 -m venv --without-pip /opt/venv
WORKDIR /src
COPY pyproject.toml constraints.txt ./
RUN mkdir service trainer && touch service/__init__.py trainer/__init__.py README.md LICENSE

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

# constraints.txt has no onnxruntime-gpu: it gets the version of onnxruntime, which is the tested one.
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


# What runs. The user is a number, so that Kubernetes can see that it is not root. The root file
# system may be read-only; only the embedded store writes, and only where no Redis is named. No VOLUME:
# it would leave an unnamed volume behind each container that uses Redis. onnxruntime sends telemetry
# to its maker unless it is told not to before it loads.
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
ENTRYPOINT ["python", "-m", "trainer"]

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
ENTRYPOINT ["python", "-m", "service"]

# The health check asks for life, not for readiness: what restarts unhealthy containers (Swarm) must
# not do so because Redis is away. The entry point is no shell, so SIGTERM reaches the service.
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
ENTRYPOINT ["python", "-m", "service"]
