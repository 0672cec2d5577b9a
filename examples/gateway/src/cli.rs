//! The command line: every flag, and the examples that `--help` shows.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use triwire::exec::frame::Direction;
use triwire::exec::request::MAX_TIMEOUT_S;
use triwire::signed::SIGNATURE_WINDOW_SECONDS;

/// Where a daemon listens and a client looks for it, when nothing else is said.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7878";

const EXAMPLES: &str = "\
Examples:
  triwire demo                                see real commands run over all three transports
  triwire serve                               run commands for clients of this machine
  triwire exec local -- uname -a              run one there
  triwire inspect recorded.bin                read a recorded stream

Exit codes: the command's own; 124 deadline, 125 failure of triwire itself, 126 the program may not
be run, 127 it was not found, 128+n signal n.";

const SERVE_EXAMPLES: &str = "\
Examples:
  triwire serve
  triwire serve --listen 127.0.0.1:9000
  triwire serve --config triwire.toml --log-format json

A config file:
  listen = \"127.0.0.1:7878\"
  hosts = [\"gateway.example\"]             # Host names beyond this machine's own
  behind_proxy = false                    # true: a proxy before it speaks TLS to the clients
  key_file = \"keys\"                       # one key a line, at least 16 characters; # comments
  metrics = \"keyed\"                       # GET /metrics: \"keyed\", \"open\" to all, or \"off\"

  [tls]                                   # needed beyond loopback, unless behind_proxy
  cert = \"cert.pem\"                       # the chain, the server's own first
  key = \"key.pem\"

  [channel]                               # executors at /channel, calls at /channel/calls
  page = true                             # a page at /, an executor in the browser
  loopback_auth = false                   # true: pages need the session that is printed once
  hello_bound_ms = 5000                   # how long an executor has to say hello
  extensions_dir = \"channel\"              # folder of pairings and host token [the state folder]

  [sandboxes.build]                       # processes of this machine: kind = \"process\"
  root = \"/srv/build\"
  inherit_env = false                     # true hands on the gateway's whole environment

  [sandboxes.vm]                          # a peer that speaks the hijacked transport itself
  kind = \"tcp\"
  address = \"10.0.0.2:7878\"
  path = \"/exec?stdin=1\"                # where it serves commands; this is the default
  key_file = \"vm-key\"                   # without one, no key is sent

  [sandboxes.agent]                       # the same behind a unix socket
  kind = \"unix\"
  socket = \"/run/agent.sock\"            # path and key_file too

  [sandboxes.mcu]                         # a device at a serial port: a tty or a pty
  kind = \"serial\"
  device = \"/dev/ttyUSB0\"               # one sandbox for each device
  speed = 115200                          # bits per second; this is the default
  flow_control = false                    # true uses RTS and CTS; path and key_file too
  executor = \"mcu\"                      # calls to this executor are answered by the device, too

Without a config there is one sandbox, `local`, and a key made at the first start. Key files are
read again when they change: removing the last key admits nobody. Commands see this machine's
paths: a sandbox has a folder of its own, it is no jail.";

const EXEC_EXAMPLES: &str = "\
Examples:
  triwire exec local -- sh -c 'echo out; echo err >&2; exit 3'
  triwire exec -i local -- sha256sum < big.iso
  triwire exec --timeout 5 --env LANG=C --cwd /logs local -- ls -l
  triwire exec --url http://10.0.0.5:7878 --key-file key local -- hostname
  triwire exec --url https://gateway.example --ca ca.pem --key-file key local -- hostname
  triwire exec --json local -- date

The key comes from --key-file, TRIWIRE_KEY_FILE, TRIWIRE_KEY, or for a gateway on this machine from
the state folder; never from the command line.

--json prints one JSON object a line: {\"stdout\": TEXT} and {\"stderr\": TEXT} as output comes, with
\"encoding\": \"base64\" where it is not UTF-8, then {\"result\": …, \"status\": N}; a failure of triwire
itself is {\"error\": TEXT, \"status\": 125}.";

const CP_EXAMPLES: &str = "\
Examples:
  triwire cp build.tar local:/in/                 keeps its name
  triwire cp src local:/in/                       a folder, with what is in it
  triwire cp notes.txt local:/in/renamed.txt
  triwire cp local:/out/result.bin .
  date | triwire cp - local:/in/date
  triwire cp local:/out/log - | less

A file that is there is replaced, never written through, and nothing is stored outside the sandbox's
folder; permission bits are kept. A folder comes out as an archive that a command makes:
  triwire exec local -- tar -c out | tar -x

Exit codes: 0 copied, 125 not, or not all of it; what was refused is named.";

const ASK_EXAMPLES: &str = "\
Examples:
  triwire ask --executor desk-1 texts/measure '{\"text\": \"hello\"}' --bounds '{\"maxRequests\": 100}'
  triwire ask --executor mcu board/read_sensor --timeout 2
  triwire ask --executor mcu --json board/read_sensor - < args.json

The bounds are those with which the executor has admitted the extension; it refuses other ones.

Exit codes: 0 it was carried out (what was observed is printed), 1 it was refused (why is said), 124 no
answer came in time, 125 failure of triwire itself.";

const PAIR_EXAMPLES: &str = "\
Examples:
  triwire pair desk-1 > bearer                  the bearer, printed this once
  triwire pair --revoke desk-1                  and its executor is sent away

The gateway's config has [channel]. The host token, which shows that you may, is read from its state
folder, or from --host-token-file. Pairing a name again revokes the bearer that it had.";

const EXECUTOR_EXAMPLES: &str = "\
Examples:
  triwire executor --bearer-file bearer tools.toml
  triwire executor --url https://gateway.example --ca ca.pem --bearer-file bearer tools.toml

A file of tools:
  root = \".\"                              # folder that the commands see as /, beside this file
  concurrency = 4                         # calls that run at once; further ones are refused

  [tools.texts.measure]                   # the extension, then the tool
  command = [\"wc\", \"-c\"]                # its standard input is the arguments, a JSON object
  bounds = { maxRequests = 100 }          # what calls must echo; maxRequests is the budget
  timeout = 10                            # seconds, then the command is killed; this is the default
  env = { LANG = \"C\" }                    # beside it the command has no variables of ours
  raw = true                              # output is any text: it is answered as {\"text\": …}

Without `raw` a command prints one JSON object, which is answered as what was observed. A command
that fails is answered exec-threw, with its exit code and the last line of its standard error.

The bearer comes from --bearer-file or TRIWIRE_BEARER; never from the command line. A connection that
is lost is made again, later each time; a bearer that is refused, or another executor in the chair,
end it with exit code 125.";

const DEMO_EXAMPLES: &str = "\
Examples:
  triwire demo
  triwire demo --json | jq 'select(.ok == false)'";

const INSPECT_EXAMPLES: &str = "\
Examples:
  triwire inspect recorded.bin
  triwire inspect --full - < recorded.bin
  triwire inspect --json recorded.bin | jq 'select(.kind == \"exit\").result'

Exit codes: 0 the stream keeps the contract, 1 it does not (what and at which byte is said), 125 it
could not be read.";

const CONFORM_EXAMPLES: &str = "\
Examples:
  triwire conform                                       our own cases, our own testee
  triwire conform --testee 'python3 my_testee.py'       another implementation
  triwire conform fixtures/cases recordings/exec        other files and folders
  triwire conform --json | jq 'select(.outcome == \"failed\")'

A testee reads one request a line, {\"id\", \"op\", \"in\"}, and answers each with one line:
{\"id\", \"out\"}, or {\"id\", \"unsupported\": true}.

Exit codes: 0 no case failed and at least one passed, 1 otherwise, 125 the cases could not be run.";

const SIGN_EXAMPLES: &str = "\
Examples:
  triwire sign --key-id shop.1 --key-file key https://shop.example/assistant/tools body.json
  triwire sign --key-id shop.1 --key-file key --explain -X GET 'https://a.example/conversations?session=1'
  curl -H \"assistant-signature: $(triwire sign … URL body.json)\" --data-binary @body.json URL

The secret comes from --key-file or the variable TRIWIRE_SIGNING_KEY, without the white space around
it; never from the command line.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  triwire verify --key-file key --header 'v1 k=shop.1,t=…,n=…,s=…' https://shop.example/tools body.json
  triwire verify --key-file key --header \"$HEADER\" --explain --now 1800000000 URL body.json

No nonce is claimed: a receiver accepts the request once. --explain shows the eight lines, and where
the signature is wrong, which line the sender wrote otherwise, if it is a common mistake.

Exit codes: 0 the request is genuine and in time, 1 it is refused, 125 it could not be judged.";

const CONFIG_EXAMPLES: &str = "\
Examples:
  triwire config show
  triwire config show --config triwire.toml --json";

#[derive(Debug, Parser)]
#[command(name = "triwire", version, about = "Runs commands over the wire: frames, three transports, one gateway", after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs commands in sandboxes for clients that have a key
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Runs one command in a sandbox of a gateway
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArgs),
    /// Copies files into a sandbox, or one file out of it
    #[command(after_help = CP_EXAMPLES)]
    Cp(CpArgs),
    /// Asks an executor that is connected to a gateway to run a tool
    #[command(after_help = ASK_EXAMPLES)]
    Ask(AskArgs),
    /// Gives a machine the bearer with which it becomes an executor of a gateway
    #[command(after_help = PAIR_EXAMPLES)]
    Pair(PairArgs),
    /// Runs commands as tools of an executor of a gateway
    #[command(after_help = EXECUTOR_EXAMPLES)]
    Executor(ExecutorArgs),
    /// Runs real commands over all three transports, and on firmware in QEMU, and checks each result
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Shows a recorded stream of frames, and what is wrong with it
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Signs a request and prints the header's value
    #[command(after_help = SIGN_EXAMPLES)]
    Sign(SignArgs),
    /// Judges a signed request as a receiver would, and says why
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Runs the conformance suite against an implementation
    #[command(after_help = CONFORM_EXAMPLES)]
    Conform(ConformArgs),
    /// Answers the conformance suite's requests, one JSON object a line
    Testee,
    /// Shows the settings
    Config(ConfigArgs),
    /// Prints a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Prints the manual page, in roff: triwire man | man -l -
    Man {
        /// A command, for its own page
        command: Option<String>,
    },
}

impl Command {
    /// Reports whether failures are told as JSON too.
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Self::Exec(args) => args.json,
            Self::Ask(args) => args.json,
            Self::Pair(args) => args.json,
            Self::Demo(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Config(ConfigArgs { command: ConfigCommand::Show(args) }) => args.json,
            Self::Conform(args) => args.json,
            Self::Sign(args) => args.request.json,
            Self::Verify(args) => args.request.json,
            Self::Serve(_)
            | Self::Cp(_)
            | Self::Executor(_)
            | Self::Testee
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StateFlags {
    /// Folder of the key and the `local` sandbox [default: triwire in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "DIR", env = "TRIWIRE_STATE")]
    pub(crate) state: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// Config file, in TOML
    #[arg(long, value_name = "FILE", env = "TRIWIRE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDR", env = "TRIWIRE_LISTEN")]
    pub(crate) listen: Option<String>,
    /// Listens beyond this machine without TLS, since a proxy speaks it to the clients and nobody
    /// else reaches this port
    #[arg(long, env = "TRIWIRE_BEHIND_PROXY", value_parser = BoolishValueParser::new())]
    pub(crate) behind_proxy: bool,
    #[command(flatten)]
    pub(crate) state: StateFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) flags: ServeFlags,
    /// Lets everybody of this machine in without a key; refused beyond loopback
    #[arg(long)]
    pub(crate) insecure_no_auth: bool,
    /// Form of the log on standard error
    #[arg(long, value_enum, default_value_t, env = "TRIWIRE_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
    /// What to log: error, warn, info, debug, or a filter such as triwire_std=debug
    #[arg(long, value_name = "FILTER", default_value = "info", env = "TRIWIRE_LOG")]
    pub(crate) log: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportName {
    /// WebSocket
    Ws,
    /// A connection that stops being HTTP after its head
    Hijack,
    /// One POST, no input
    OneShot,
}

#[derive(Debug, Args)]
pub(crate) struct ClientFlags {
    /// Address of the gateway [default: http://127.0.0.1:7878]
    #[arg(long, value_name = "URL", env = "TRIWIRE_URL")]
    pub(crate) url: Option<String>,
    /// File with the key; its first key is used
    #[arg(long, value_name = "FILE", env = "TRIWIRE_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// File of certificates to trust, in PEM, for an https URL [default: the system's]
    #[arg(long, value_name = "FILE", env = "TRIWIRE_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// How to carry it [default: one-shot, with -i ws]
    #[arg(long, value_enum, env = "TRIWIRE_TRANSPORT")]
    pub(crate) transport: Option<TransportName>,
    /// Seconds the command may run; 0 is no limit [default: 0]
    #[arg(long, value_name = "S", env = "TRIWIRE_TIMEOUT",
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_TIMEOUT_S)))]
    pub(crate) timeout: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) client: ClientFlags,
    #[command(flatten)]
    pub(crate) state: StateFlags,
    /// Forwards standard input
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Sets a variable; a name alone passes on its value here
    #[arg(short, long, value_name = "K=V", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Working directory, where / is the sandbox's folder
    #[arg(long, value_name = "D", default_value = "", hide_default_value = true)]
    pub(crate) cwd: String,
    /// Prints output and result as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Name of the sandbox
    pub(crate) sandbox: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) cmd: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => match std::env::var(text) {
            Ok(value) => (text, value),
            Err(_) => return Err("expected K=V, or the name of a variable that is set".into()),
        },
    };
    if name.is_empty() {
        return Err("the name of the variable is empty; expected K=V".into());
    }
    Ok((name.to_owned(), value))
}

/// Where a gateway is, for what is not exec.
#[derive(Debug, Args)]
pub(crate) struct ServerFlags {
    /// Address of the gateway [default: http://127.0.0.1:7878]
    #[arg(long, value_name = "URL", env = "TRIWIRE_URL")]
    pub(crate) url: Option<String>,
    /// File of certificates to trust, in PEM, for an https URL [default: the system's]
    #[arg(long, value_name = "FILE", env = "TRIWIRE_CA")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// File with the key; its first key is used
    #[arg(long, value_name = "FILE", env = "TRIWIRE_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateFlags,
    /// What to copy: a path, SANDBOX:/PATH, or - for standard input
    #[arg(value_name = "FROM", allow_hyphen_values = true)]
    pub(crate) from: String,
    /// Where to: SANDBOX:/PATH, a path, or - for standard output
    #[arg(value_name = "TO", allow_hyphen_values = true)]
    pub(crate) to: String,
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// File with the key; its first key is used
    #[arg(long, value_name = "FILE", env = "TRIWIRE_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateFlags,
    /// Whom to ask: a machine by the name of its pairing, or `page`, the browser's
    #[arg(long, value_name = "NAME", default_value = "page")]
    pub(crate) executor: String,
    /// Bounds that the call echoes, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) bounds: String,
    /// Seconds to wait for the answer, at most what the gateway waits [default: as the gateway]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Prints one JSON object: {"observed": …} or {"refused": …, "why": …}
    #[arg(long)]
    pub(crate) json: bool,
    /// The extension and its tool
    #[arg(value_name = "EXTENSION/TOOL", value_parser = tool)]
    pub(crate) tool: (String, String),
    /// The arguments, a JSON object; - is standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) args: String,
}

fn tool(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((extension, tool)) if !extension.is_empty() && !tool.is_empty() => {
            Ok((extension.to_owned(), tool.to_owned()))
        }
        _ => Err("expected the extension and its tool, such as notes/read".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|duration| *duration >= Duration::from_millis(1))
        .ok_or_else(|| "expected seconds, at least 0.001".into())
}

#[derive(Debug, Args)]
pub(crate) struct PairArgs {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(flatten)]
    pub(crate) state: StateFlags,
    /// File with the gateway's host token [default: .host-token in its state folder]
    #[arg(long, value_name = "FILE", env = "TRIWIRE_HOST_TOKEN_FILE")]
    pub(crate) host_token_file: Option<PathBuf>,
    /// Revokes the machine's bearer instead
    #[arg(long)]
    pub(crate) revoke: bool,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Name of the machine, 1 to 256 bytes; calls are made by it
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExecutorArgs {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// File with the bearer of this machine's pairing
    #[arg(long, value_name = "FILE", env = "TRIWIRE_BEARER_FILE")]
    pub(crate) bearer_file: Option<PathBuf>,
    /// What to log: error, warn, info, debug, or a filter such as triwire_std=debug
    #[arg(long, value_name = "FILTER", default_value = "info", env = "TRIWIRE_LOG")]
    pub(crate) log: String,
    /// The tools, in TOML
    pub(crate) tools: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Image of examples/firmware to run in QEMU [default: the one that tests/run device built]
    #[arg(long, value_name = "FILE", env = "TRIWIRE_FIRMWARE")]
    pub(crate) firmware: Option<PathBuf>,
    /// Prints one JSON object a check, then a summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionName {
    /// Output: stdout, stderr, exit
    #[value(alias = "guest_to_host")]
    GuestToHost,
    /// Input: stdin, stdin_close
    #[value(alias = "host_to_guest")]
    HostToGuest,
}

impl From<DirectionName> for Direction {
    fn from(name: DirectionName) -> Self {
        match name {
            DirectionName::GuestToHost => Self::GuestToHost,
            DirectionName::HostToGuest => Self::HostToGuest,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The recorded stream; - is standard input
    pub(crate) file: PathBuf,
    /// Which way the stream went [default: told by its first byte]
    #[arg(long, value_enum)]
    pub(crate) direction: Option<DirectionName>,
    /// Shows payloads whole instead of their beginning
    #[arg(long)]
    pub(crate) full: bool,
    /// Prints one JSON object a frame, then a summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SignedFlags {
    /// File with the secret; - is standard input
    #[arg(long, value_name = "FILE", env = "TRIWIRE_SIGNING_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Method of the request
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "POST")]
    pub(crate) method: String,
    /// Shows the eight lines that are signed
    #[arg(long)]
    pub(crate) explain: bool,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The absolute URL that is asked for
    pub(crate) url: String,
    /// File with the body exactly as it is sent; - is standard input [default: no body]
    pub(crate) body: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    #[command(flatten)]
    pub(crate) request: SignedFlags,
    /// Id of the key, which travels in the header
    #[arg(long, value_name = "ID", env = "TRIWIRE_SIGNING_KEY_ID")]
    pub(crate) key_id: Option<String>,
    /// Time of the request, in Unix seconds [default: now]
    #[arg(long, value_name = "S")]
    pub(crate) time: Option<u64>,
    /// Nonce: letters, digits, _ and -, never used twice [default: a random one]
    #[arg(long, value_name = "NONCE")]
    pub(crate) nonce: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) request: SignedFlags,
    /// Id of the key that the receiver knows: a request under another is refused [default: any]
    #[arg(long, value_name = "ID", env = "TRIWIRE_SIGNING_KEY_ID")]
    pub(crate) key_id: Option<String>,
    /// The header, with or without its name
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: String,
    /// The receiver's clock, in Unix seconds [default: now]
    #[arg(long, value_name = "S")]
    pub(crate) now: Option<u64>,
    /// How far the request's time may be from the clock, in seconds
    #[arg(long, value_name = "S", default_value_t = SIGNATURE_WINDOW_SECONDS)]
    pub(crate) window: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ConformArgs {
    /// Starts the implementation under test, in a shell [default: triwire testee]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) testee: Option<String>,
    /// Prints one JSON object a case, then the totals
    #[arg(long)]
    pub(crate) json: bool,
    /// Files of cases, manifests, or folders of them [default: the suite that is built in]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Shows each setting and where it comes from: flag, variable, file or default
    #[command(after_help = CONFIG_EXAMPLES)]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) serve: ServeFlags,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_sandbox_is_the_command() {
        for line in [
            &["triwire", "exec", "local", "--", "ls", "-l"][..],
            &["triwire", "exec", "local", "ls", "-l"],
        ] {
            let Command::Exec(args) = Cli::parse_from(line).command else { panic!("{line:?}") };
            assert_eq!((args.sandbox.as_str(), args.cmd.len()), ("local", 2));
        }
    }

    #[test]
    fn variables_need_a_name() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(variable("=b").is_err());
        assert!(variable("TRIWIRE_NO_SUCH_VARIABLE").is_err());
    }
}
