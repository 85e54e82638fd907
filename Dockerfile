# tarproc, tarkit and kubetpl for a user that is not root. What is in it, and how to add programs: docs/images.md.
#     docker build -t tarkit:0.1.0 .
# BASE is Debian or Ubuntu with Python 3.10 or newer and its venv.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
# A wheel that is there already, such as dist/tarkit-0.1.0-py3-none-any.whl; else it is built from these sources.
ARG WHEEL=
ARG EXTRAS=azure,gcs,hdfs,s3,service
WORKDIR /src
COPY . .
RUN python3 -m venv /opt/tarkit
# For an index of your own: docker build --secret id=pip.conf,src=pip.conf. It stays out of the image.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    if [ -z "${WHEEL}" ]; then /opt/tarkit/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .; \
    else mkdir /wheels && cp "${WHEEL}" /wheels; fi \
    && /opt/tarkit/bin/pip install --no-cache-dir "$(echo /wheels/tarkit-*.whl)[${EXTRAS}]"

FROM ${BASE}
COPY --from=build /opt/tarkit /opt/tarkit
# 65532 is the user of the pods that kubetpl prints.
RUN groupadd --gid 65532 tarkit \
    && useradd --key UID_MAX=65532 --uid 65532 --gid 65532 --create-home tarkit
ENV PATH=/opt/tarkit/bin:${PATH} PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /home/tarkit
CMD ["tarproc", "--help"]
