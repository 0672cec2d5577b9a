//! Calls to tools of executors that are connected to a gateway, over its HTTP routes.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use triwire::OutTooSmall;
use triwire::channel::broker;
use triwire::channel::envelope::{self, EnvelopeError};
use triwire::channel::route::{
    Asking, CALLS_PATH, HOST_TOKEN_HEADER, PAIR_PATH, issued_bearer, write_env_key,
};
use triwire::exec::head::JSON_TYPE;
use triwire::json::Text;

use super::http::{Http, HttpError, Settings};
use super::{Client, Secret};
use crate::exchange::{self, Refusal};
use crate::outcome::{Outcome, owned};

/// How much longer than its patience a call may take on the way.
const MARGIN: Duration = Duration::from_secs(5);

/// Makes calls through a gateway, over connections that it keeps. Copies share them.
///
/// ```no_run
/// use triwire::channel::broker::Request;
/// use triwire::channel::envelope::Object;
/// use triwire_std::client::{Client, Outcome};
///
/// # async fn run(key: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let caller = Client::builder("http://127.0.0.1:7878").key(key).build()?.caller();
/// let args = Object::parse(r#"{"register":1}"#)?;
/// let bounds = Object::parse(r#"{"maxRequests":100}"#)?;
/// match caller.ask("mcu", Request::new("board", "read", args, bounds)).await? {
///     Outcome::Observed(object) => println!("{}", object.as_str()),
///     Outcome::Refused { refused, why } => eprintln!("{refused}: {why}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Caller {
    client: Client,
    http: Http,
}

impl Client {
    /// Makes a caller of the executors at this server, with this client's key and trust.
    #[must_use]
    pub fn caller(&self) -> Caller {
        let settings = Settings {
            connect_bound: self.connect_timeout,
            #[cfg(feature = "tls")]
            trust: self.tls.clone(),
            ..Settings::DEFAULT
        };
        Caller { client: self.clone(), http: Http::new(settings) }
    }
}

impl Caller {
    /// Asks an executor: `page`, or a machine by the name of its pairing. A call that was refused
    /// is an answer as well.
    ///
    /// # Errors
    /// The [`CallerError`] that says why there is no answer.
    ///
    /// # Cancel safety
    /// Dropping the future gives the call up and frees its slot at the gateway; an executor that
    /// has it may still carry it out.
    // rule: CHAN-73, CHAN-77
    pub async fn ask(
        &self,
        executor: &str,
        request: broker::Request<'_>,
    ) -> Result<Outcome, CallerError> {
        let patience = request.patience;
        let millis = |patience: Duration| u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let asking = Asking {
            executor: Some(Text::plain(executor)),
            tool: Text::plain(request.tool),
            descriptor_id: Text::plain(request.descriptor_id),
            args: request.args,
            bounds_echo: request.bounds_echo,
            timeout_ms: patience.map(millis),
        };
        let body = written(|out| asking.write(out));
        let bound = patience.map_or(self.http.bound, |patience| {
            patience.saturating_add(MARGIN).max(self.http.bound)
        });
        let answer = self.send(Method::POST, CALLS_PATH, body, None, bound).await?;
        let answer = envelope::Answer::parse(&answer).map_err(CallerError::Malformed)?;
        Ok(Outcome::of(answer.outcome))
    }

    /// Pairs a machine: issues a bearer for the name `env_key`. One that was issued before is
    /// revoked by that, and who is connected with it sent away.
    ///
    /// # Errors
    /// The [`CallerError`] that says why there is no bearer.
    // rule: CHAN-74
    pub async fn pair(&self, env_key: &str, host_token: &Secret) -> Result<Secret, CallerError> {
        let body = written(|out| write_env_key(env_key, out));
        let token = Some(host_token);
        let answer = self.send(Method::POST, PAIR_PATH, body, token, self.http.bound).await?;
        issued_bearer(&answer).map(|bearer| Secret::new(owned(bearer))).ok_or(CallerError::NoBearer)
    }

    /// Revokes a machine's bearer, and sends away who is connected with it.
    ///
    /// # Errors
    /// The [`CallerError`] that says why it was not revoked.
    pub async fn unpair(&self, env_key: &str, host_token: &Secret) -> Result<(), CallerError> {
        let body = written(|out| write_env_key(env_key, out));
        let token = Some(host_token);
        self.send(Method::DELETE, PAIR_PATH, body, token, self.http.bound).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        host_token: Option<&Secret>,
        bound: Duration,
    ) -> Result<Bytes, CallerError> {
        let uri = format!("{}{path}", self.client.url());
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = method;
        // It was a URL when the client was made.
        *request.uri_mut() = uri.parse().map_err(|_| CallerError::Secret)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
        let secret = |text: String| {
            let mut value = HeaderValue::try_from(text).map_err(|_| CallerError::Secret)?;
            value.set_sensitive(true);
            Ok::<_, CallerError>(value)
        };
        if let Some(key) = &self.client.key {
            headers.insert(AUTHORIZATION, secret(format!("Bearer {}", key.as_str()))?);
        }
        if let Some(token) = host_token {
            headers.insert(HOST_TOKEN_HEADER, secret(token.as_str().to_owned())?);
        }
        let answer = self.http.send(request, bound).await?;
        if answer.status == StatusCode::OK {
            return Ok(answer.body);
        }
        let Refusal { code, why } = exchange::refusal_of(&answer.body);
        Err(CallerError::Refused { status: answer.status.as_u16(), code, why })
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("client", &self.client).finish_non_exhaustive()
    }
}

fn written(write: impl Fn(&mut [u8]) -> Result<&[u8], OutTooSmall>) -> Vec<u8> {
    let mut room = vec![0; 1024];
    loop {
        let needed = match write(&mut room) {
            Ok(text) => return text.to_vec(),
            Err(error) => error.needed,
        };
        room.resize(needed, 0);
    }
}

/// Why there is no answer to a call or to a pairing.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallerError {
    /// The key or the host token cannot stand in a header. Nothing was sent.
    Secret,
    /// The gateway did not answer.
    Http(HttpError),
    /// The gateway answered with an HTTP error; no executor was asked.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable word in the answer's body, empty when it had none.
        code: String,
        /// The answer's own words, on one line; empty when it had none.
        why: String,
    },
    /// The answer breaks the contract.
    Malformed(EnvelopeError),
    /// The answer to a pairing holds no bearer.
    NoBearer,
}

impl From<HttpError> for CallerError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl fmt::Display for CallerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self {
            Self::Secret => {
                return f.write_str("a key or token is visible ASCII characters, no spaces");
            }
            Self::Http(error) => return error.fmt(f),
            Self::Malformed(error) => return write!(f, "the gateway broke the contract: {error}"),
            Self::NoBearer => {
                return f
                    .write_str("the gateway answered without a bearer; is it a gateway's URL?");
            }
            Self::Refused { status, code, .. } => match (*status, code.as_str()) {
                (400, _) => "the gateway refused the call as malformed",
                (401, _) => "the gateway does not know the key; check the key file",
                (403, "host-token-required") => {
                    "pairing needs the gateway's host token, .host-token in its state folder"
                }
                (403, _) => "the gateway does not answer to this host name; add it to its `hosts`",
                (404, "environment-not-paired") => "no machine is paired under this name",
                (404, _) => "there is no channel here; check the URL, and [channel] in its config",
                (413, _) => "the call is too large for the gateway",
                (503, _) => "the gateway has no room, or cannot read its pairings; see its log",
                _ => "the gateway did not take the call; see its log",
            },
        };
        let Self::Refused { status, why, .. } = self else { return Ok(()) };
        match why.as_str() {
            "" => write!(f, "{advice} (status {status})"),
            why => write!(f, "{advice} (status {status}: {why})"),
        }
    }
}

impl Error for CallerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Http(error) => error.source(),
            Self::Malformed(error) => Some(error),
            Self::Secret | Self::Refused { .. } | Self::NoBearer => None,
        }
    }
}
