//! Clients of the Driver API that share no code with us: grpcurl, built from the Go module `tests/grpcurl`, and Python's
//! grpcio in an environment of its own below the target directory. It may not know what they are used to ask.

use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use millwright_dev::apiserver::binaries::{target_dir, workspace_root};
use millwright_dev::once::{beside, made_once};
use millwright_dev::process::{self, say};

use crate::requirement;

/// What a client program printed, and how it ended.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Exit code; grpcurl adds the gRPC code to 64.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// grpcurl on one unix socket.
#[derive(Clone, Debug)]
pub struct Grpcurl {
    program: PathBuf,
    socket: PathBuf,
}

impl Grpcurl {
    /// grpcurl from PATH, from an earlier build or built now; `None` after saying that `what` is skipped without Go.
    ///
    /// # Panics
    /// It cannot be built, or is missing where it is demanded.
    #[must_use]
    pub fn for_socket(what: &str, socket: &Path) -> Option<Self> {
        let program = process::on_path("grpcurl").or_else(|| build_grpcurl(what))?;
        Some(Self {
            program,
            socket: socket.to_owned(),
        })
    }

    /// Runs `grpcurl -plaintext -unix [-d REQUEST] SOCKET WORD…`.
    ///
    /// # Panics
    /// It cannot be executed.
    #[must_use]
    pub fn ask(&self, request: Option<&serde_json::Value>, words: &[&str]) -> Answer {
        let mut command = Command::new(&self.program);
        command.args(["-plaintext", "-unix", "-max-time", "60"]);
        if let Some(request) = request {
            command.arg("-d").arg(request.to_string());
        }
        command.arg(&self.socket).args(words);
        answer(command)
    }
}

fn build_grpcurl(what: &str) -> Option<PathBuf> {
    const PACKAGE: &str = "github.com/fullstorydev/grpcurl/cmd/grpcurl";
    let module = workspace_root().join("tests/grpcurl");
    let pins = std::fs::read_to_string(module.join("go.mod")).expect("the module of grpcurl is in the checkout");
    let dir = target_dir().join("grpcurl").join(fingerprint(&pins));
    let program = dir.join("grpcurl");
    if program.exists() {
        return Some(program);
    }
    let Some(go) = process::on_path("go") else {
        requirement::skip(
            what,
            "there is neither grpcurl nor Go (https://go.dev/dl) to build it with on PATH",
        );
        return None;
    };
    let made = made_once(&dir, |staging| {
        let mut build = Command::new(go);
        build
            .current_dir(&module)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly -trimpath");
        build.args(["build", "-o"]).arg(staging).arg(PACKAGE);
        prepared("building grpcurl with Go", build, &beside(&dir, "log"))
    });
    made.unwrap_or_else(|why| panic!("{what}: grpcurl: {why}"));
    Some(program)
}

/// Python with grpcio and stubs of our proto.
#[derive(Debug)]
pub struct Python {
    program: PathBuf,
    stubs: tempfile::TempDir,
}

impl Python {
    /// The environment of `tests/python/requirements.txt`, made once, and fresh stubs; `None` after saying that `what` is
    /// skipped without Python.
    ///
    /// # Panics
    /// It cannot be made, or Python is missing where it is demanded.
    #[must_use]
    pub fn with_stubs(what: &str) -> Option<Self> {
        let Some(python) = process::on_path("python3") else {
            requirement::skip(what, "there is no python3 on PATH");
            return None;
        };
        let program = environment(&python).unwrap_or_else(|why| panic!("{what}: Python with grpcio: {why}"));
        let stubs = tempfile::tempdir().expect("a temporary directory can be made");
        let out = stubs.path().display();
        let mut generate = Command::new(&program);
        generate.current_dir(workspace_root().join("proto"));
        generate.args(["-m", "grpc_tools.protoc", "-I", "."]);
        generate.args([format!("--python_out={out}"), format!("--grpc_python_out={out}")]);
        generate.arg("machine/driver/v1/driver.proto");
        let generated = answer(generate);
        assert_eq!(
            generated.code,
            Some(0),
            "{what}: grpc_tools.protoc: {}",
            generated.stderr
        );
        Some(Self { program, stubs })
    }

    /// Runs a program of `tests/python`.
    ///
    /// # Panics
    /// Python cannot be executed.
    #[must_use]
    pub fn run(&self, script: &str, args: &[&str]) -> Answer {
        let mut command = Command::new(&self.program);
        command
            .env("PYTHONPATH", self.stubs.path())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
            .arg(workspace_root().join("tests/python").join(script))
            .args(args);
        answer(command)
    }
}

/// The interpreter of a virtual environment that holds our requirements.
fn environment(python: &Path) -> Result<PathBuf, String> {
    let requirements = workspace_root().join("tests/python/requirements.txt");
    let pins = std::fs::read_to_string(&requirements).map_err(|error| error.to_string())?;
    let version = answer_of(python, &["--version"]);
    let dir = target_dir().join("python").join(fingerprint(&(pins, version.stdout)));
    let made = made_once(&dir, |staging| {
        let mut venv = Command::new(python);
        venv.args(["-m", "venv"]).arg(staging);
        prepared("making a Python environment", venv, &beside(&dir, "venv.log"))?;
        let mut install = Command::new(staging.join("bin/python"));
        install.args([
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--requirement",
        ]);
        install.arg(&requirements);
        prepared("installing grpcio for Python", install, &beside(&dir, "pip.log"))
    });
    made.map_err(|why| why.to_string())?;
    Ok(dir.join("bin/python"))
}

/// Why a tool could not be prepared.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("{program} cannot be run")]
    Run {
        program: String,
        #[source]
        error: std::io::Error,
    },
    #[error("{program} failed ({status}):\n{tail}")]
    Failed {
        program: String,
        status: std::process::ExitStatus,
        tail: String,
    },
}

fn prepared(doing: &str, command: Command, log: &Path) -> Result<(), PrepareError> {
    let program = command.get_program().to_string_lossy().into_owned();
    say("clients", &format!("{doing}, once"));
    let alive = |elapsed: std::time::Duration| say("clients", &format!("{doing} for {} s", elapsed.as_secs()));
    match process::run_long(command, log, alive) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(PrepareError::Failed {
            program,
            status,
            tail: process::tail(log, 20),
        }),
        Err(error) => Err(PrepareError::Run { program, error }),
    }
}

fn answer_of(program: &Path, args: &[&str]) -> Answer {
    let mut command = Command::new(program);
    command.args(args);
    answer(command)
}

fn answer(mut command: Command) -> Answer {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// Names what was made of these pins; other pins get another directory.
fn fingerprint(pins: &impl std::hash::Hash) -> String {
    let mut hasher = DefaultHasher::new();
    pins.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
