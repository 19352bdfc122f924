"""Says how each library of packaging/sources.txt is built: a static library, its headers and a pkg-config file below a prefix.

A recipe gets a Build and the folder of the unpacked source. It runs with the tools of toolchain.py. No recipe puts the prefix
into the library, so the prefix may be anywhere.
"""
import os
import shutil
import subprocess
from pathlib import Path

from toolchain import Failed

OPTIMISE = "-O2 -g0 -fPIC -ffunction-sections -fdata-sections -fstack-protector-strong -D_FORTIFY_SOURCE=2"
NOT_REAL = "/usr"  # folder that a library may name in its texts
PC = "prefix={prefix}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: {name}\nDescription: {name}\nVersion: {version}\n" \
     "Libs: -L${{libdir}} -l{lib}\nLibs.private: {private}\nCflags: -I${{includedir}}\n"


class Build:
    """Holds one build of all libraries: processor, prefix, environment and the log of the commands."""

    def __init__(self, arch, prefix, environment, log, jobs):
        self.arch, self.prefix, self.environment, self.log, self.jobs = arch, Path(prefix), environment, Path(log), jobs
        for name in ("lib/pkgconfig", "include"):
            (self.prefix / name).mkdir(parents=True, exist_ok=True)

    def run(self, *command, cwd, **more):
        with open(self.log, "a") as log:
            log.write(f"$ {' '.join(map(str, command))}\n")
            log.flush()
            try:
                done = subprocess.run([str(c) for c in command], cwd=cwd, env={**self.environment, **more}, stdout=log, stderr=log, check=False)
            except FileNotFoundError:
                raise Failed(f"the program {command[0]} is not installed. Run scripts/setup --packaging on Debian or Ubuntu first.") from None
        if done.returncode != 0:
            raise Failed(f"this command failed: {' '.join(map(str, command[:4]))} …. Its output is at the end of {self.log}.")

    def make(self, *targets, cwd, **more):
        self.run("make", f"-j{self.jobs}", *targets, cwd=cwd, **more)

    def cmake(self, source, *options):
        """Configures, builds and installs a project of CMake."""
        at = source / "cox-build"
        self.run("cmake", "-S", source, "-B", at, "-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={self.arch}",
                 "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_C_FLAGS={OPTIMISE}", f"-DCMAKE_CXX_FLAGS={OPTIMISE}", "-DCMAKE_C_COMPILER=cox-cc",
                 "-DCMAKE_CXX_COMPILER=cox-c++", f"-DCMAKE_AR={shutil.which('cox-ar', path=self.environment['PATH'])}",
                 f"-DCMAKE_RANLIB={shutil.which('cox-ranlib', path=self.environment['PATH'])}", f"-DCMAKE_INSTALL_PREFIX={self.prefix}",
                 "-DCMAKE_INSTALL_LIBDIR=lib", f"-DCMAKE_FIND_ROOT_PATH={self.prefix}", "-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY",
                 "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY", "-DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY", "-DBUILD_SHARED_LIBS=OFF",
                 "-DCMAKE_POLICY_VERSION_MINIMUM=3.5", *options, cwd=source,
                 PKG_CONFIG_LIBDIR=str(self.prefix / "lib/pkgconfig"))
        self.run("ninja", f"-j{self.jobs}", "-C", at, "install", cwd=source)

    def compile(self, lib, files, cwd, flags=()):
        """Makes lib<LIB>.a of C files."""
        objects = []
        for i, file in enumerate(files):
            objects.append(f"cox-{i}-{Path(file).stem}.o")
            self.run("cox-cc", *OPTIMISE.split(), *flags, "-c", file, "-o", objects[-1], cwd=cwd)
        archive = self.prefix / f"lib/lib{lib}.a"
        archive.unlink(missing_ok=True)
        self.run("cox-ar", "crsD", archive, *objects, cwd=cwd)

    def headers(self, *files, to="."):
        (self.prefix / "include" / to).mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copyfile(file, self.prefix / "include" / to / Path(file).name)

    def pc(self, module, lib, version, private=""):
        text = PC.format(prefix=self.prefix, name=module, version=version, lib=lib, private=private)
        (self.prefix / f"lib/pkgconfig/{module}.pc").write_text(text)


def upstream(version):
    """Returns the upstream part of a Debian version that pkg-config compares: 1:1.3.dfsg+really1.3.1-1 is 1.3.1."""
    number = version.partition(":")[2] or version
    number = number.rpartition("-")[0] or number
    number = number.rpartition("really")[2] or number
    return number.split("+")[0].split("~")[0]


def zlib(b, at, version):
    files = sorted(f.name for f in at.glob("*.c") if not f.name.startswith("cox-"))
    b.compile("z", files, at, ["-DHAVE_UNISTD_H", "-DHAVE_STDARG_H", "-D_LARGEFILE64_SOURCE=1", "-DHAVE_HIDDEN"])
    b.headers(at / "zlib.h", at / "zconf.h")
    b.pc("zlib", "z", upstream(version))


def libzstd(b, at, version):
    files = sorted(str(f.relative_to(at)) for part in ("common", "compress", "decompress") for f in (at / "lib" / part).glob("*.[cS]"))
    b.compile("zstd", files, at, ["-DZSTD_LEGACY_SUPPORT=0", "-DXXH_NAMESPACE=ZSTD_"])
    b.headers(at / "lib/zstd.h", at / "lib/zstd_errors.h")
    b.pc("libzstd", "zstd", upstream(version))


def openssl(b, at, version):
    b.run("./Configure", {"x86_64": "linux-x86_64", "aarch64": "linux-aarch64"}[b.arch], "no-shared", "no-apps", "no-docs", "no-tests", "no-module",
          "no-legacy", "no-engine", "no-zlib", "no-ssl3", "no-weak-ssl-ciphers", f"--prefix={NOT_REAL}", "--libdir=lib", "--openssldir=/etc/ssl",
          *OPTIMISE.split(), cwd=at)
    b.make("build_libs", cwd=at)
    b.make("install_dev", f"DESTDIR={at}/cox-installed", cwd=at)
    installed = at / f"cox-installed{NOT_REAL}"
    for name in ("libssl.a", "libcrypto.a"):
        shutil.copyfile(installed / "lib" / name, b.prefix / "lib" / name)
    shutil.copytree(installed / "include", b.prefix / "include", dirs_exist_ok=True)
    b.pc("libcrypto", "crypto", upstream(version), "-ldl -lpthread")
    b.pc("libssl", "ssl", upstream(version), "-lcrypto -ldl -lpthread")
    b.pc("openssl", "ssl", upstream(version), "-lcrypto -ldl -lpthread")


def curl(b, at, version):
    off = ("BUILD_CURL_EXE", "BUILD_TESTING", "BUILD_LIBCURL_DOCS", "BUILD_MISC_DOCS", "ENABLE_CURL_MANUAL", "CURL_USE_LIBPSL", "CURL_USE_LIBSSH2",
           "USE_LIBIDN2", "USE_NGHTTP2", "CURL_BROTLI", "CURL_ZSTD", "CURL_DISABLE_INSTALL", "CURL_CA_FALLBACK")
    b.cmake(at, *(f"-D{name}=OFF" for name in off), "-DHTTP_ONLY=ON", "-DCURL_USE_OPENSSL=ON", "-DCURL_CA_BUNDLE=none", "-DCURL_CA_PATH=none",
            f"-DOPENSSL_ROOT_DIR={b.prefix}", f"-DZLIB_ROOT={b.prefix}", "-DCURL_TARGET_WINDOWS_VERSION=")
    b.pc("libcurl", "curl", upstream(version), "-lssl -lcrypto -lz -ldl -lpthread")


def libsodium(b, at, version):
    b.run("autoreconf", "-fi", cwd=at)
    b.run("./configure", f"--host={b.arch}-linux-gnu", f"--prefix={NOT_REAL}", "--disable-shared", "--enable-static", "--disable-dependency-tracking",
          f"CFLAGS={OPTIMISE}", cwd=at)
    b.make(cwd=at / "src/libsodium")
    b.make("install", f"DESTDIR={at}/cox-installed", cwd=at / "src/libsodium")
    shutil.copyfile(at / f"cox-installed{NOT_REAL}/lib/libsodium.a", b.prefix / "lib/libsodium.a")
    shutil.copytree(at / f"cox-installed{NOT_REAL}/include", b.prefix / "include", dirs_exist_ok=True)
    b.pc("libsodium", "sodium", upstream(version), "-lpthread")


def libuv(b, at, version):
    b.cmake(at, "-DLIBUV_BUILD_SHARED=OFF", "-DLIBUV_BUILD_TESTS=OFF", "-DLIBUV_BUILD_BENCH=OFF")
    b.pc("libuv", "uv", upstream(version), "-lpthread -ldl")


def jansson(b, at, version):
    b.cmake(at, "-DJANSSON_BUILD_DOCS=OFF", "-DJANSSON_WITHOUT_TESTS=ON", "-DJANSSON_EXAMPLES=OFF", "-DJANSSON_BUILD_SHARED_LIBS=OFF")
    b.pc("jansson", "jansson", upstream(version))


def libyaml(b, at, version):
    number = upstream(version)
    major, minor, patch = number.split(".")
    files = sorted(str(f.relative_to(at)) for f in (at / "src").glob("*.c"))
    b.compile("yaml", files, at, ["-Iinclude", f"-DYAML_VERSION_MAJOR={major}", f"-DYAML_VERSION_MINOR={minor}", f"-DYAML_VERSION_PATCH={patch}",
                                  f'-DYAML_VERSION_STRING="{number}"'])
    b.headers(at / "include/yaml.h")
    b.pc("yaml-0.1", "yaml", number)


def xxhash(b, at, version):
    b.compile("xxhash", ["xxhash.c"], at)
    b.headers(at / "xxhash.h", at / "xxh3.h")
    b.pc("libxxhash", "xxhash", upstream(version))


def hiredis(b, at, version):
    b.cmake(at, "-DDISABLE_TESTS=ON", "-DENABLE_SSL=OFF", "-DENABLE_ASYNC_TESTS=OFF")
    b.pc("hiredis", "hiredis", upstream(version))


def protobuf_c(b, at, version):
    b.compile("protobuf-c", ["protobuf-c/protobuf-c.c"], at, ["-I.", '-DPACKAGE_VERSION="' + upstream(version) + '"', '-DPACKAGE_STRING="protobuf-c"'])
    b.headers(at / "protobuf-c/protobuf-c.h", to="protobuf-c")
    b.pc("libprotobuf-c", "protobuf-c", upstream(version))


def sqlite(b, at, version):
    """Debian has SQLite's sources before they are joined. tclsh joins them into sqlite3.c, as upstream publishes them."""
    if not shutil.which("tclsh"):
        raise Failed("tclsh is not installed, and SQLite's sources are joined with it. Run apt-get install tcl.")
    native = {name: value for name, value in os.environ.items() if name not in ("CC", "AR")}
    with open(b.log, "a") as log:
        for command in (["./configure", "--disable-shared", "--disable-tcl"], ["make", "sqlite3.c"]):
            if subprocess.run(command, cwd=at, env=native, stdout=log, stderr=log, check=False).returncode != 0:
                raise Failed(f"SQLite's sources could not be joined. The output is at the end of {b.log}.")
    b.compile("sqlite3", ["sqlite3.c"], at, ["-DSQLITE_THREADSAFE=1", "-DSQLITE_OMIT_LOAD_EXTENSION", "-DHAVE_USLEEP=1", "-DSQLITE_USE_URI=1"])
    b.headers(at / "sqlite3.h")
    b.pc("sqlite3", "sqlite3", upstream(version), "-lpthread -lm")


def libzmq(b, at, version):
    off = ("BUILD_SHARED", "BUILD_TESTS", "WITH_PERF_TOOL", "WITH_DOCS", "WITH_DOC", "ENABLE_CPACK", "WITH_TLS", "WITH_NSS", "WITH_LIBBSD", "WITH_OPENPGM",
           "WITH_NORM", "WITH_VMCI", "WITH_GSSAPI_KRB5", "ENABLE_WS")
    b.cmake(at, *(f"-D{name}=OFF" for name in off), "-DBUILD_STATIC=ON", "-DWITH_LIBSODIUM=ON", "-DWITH_LIBSODIUM_STATIC=ON", "-DENABLE_CURVE=ON",
            "-DZMQ_HAVE_IPC=1", "-DPOLLER=epoll")
    b.pc("libzmq", "zmq", upstream(version), "-lsodium -lc++ -lpthread -lm")


def llhttp(b, at, version):
    folder = b.prefix / "llhttp"  # cmake/Dependencies.cmake compiles the generated C
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in (*(at / "usr/share/nodejs/llhttp").rglob("*.[ch]"), *(at / "usr/share/llhttp").glob("*.c"), *(at / "usr/share").rglob("llhttp.h")):
        shutil.copyfile(file, folder / file.name)
    for name in ("llhttp.c", "api.c", "http.c", "llhttp.h"):
        if not (folder / name).exists():
            raise Failed(f"the package node-llhttp {version} has no {name}. Look for the file's new place, and correct packaging/recipes.py.")


RECIPES = {"zlib": zlib, "libzstd": libzstd, "openssl": openssl, "curl": curl, "libsodium": libsodium, "libuv": libuv, "jansson": jansson,
           "libyaml": libyaml, "xxhash": xxhash, "hiredis": hiredis, "protobuf-c": protobuf_c, "sqlite": sqlite, "libzmq": libzmq, "llhttp": llhttp}
