//! `websocket.server` and `websocket.client`: one end of a connection, after the upgrade.

use serde_json::{Value, json};
use triwire::exec::socket::MAX_SOCKET_MESSAGE;
use triwire_std::tokio::socket::{Message, Role, messages_of};

use super::input::{Bad, Input, hex};

pub(super) fn server(input: Input<'_>) -> Result<Value, Bad> {
    run(&input, Role::Server)
}

pub(super) fn client(input: Input<'_>) -> Result<Value, Bad> {
    run(&input, Role::Client)
}

fn run(input: &Input<'_>, role: Role) -> Result<Value, Bad> {
    let limit = input.count("limit", MAX_SOCKET_MESSAGE)?;
    let received = messages_of(&input.chunks()?, role, limit);
    let messages: Vec<Value> = received
        .messages
        .iter()
        .map(|message| match message {
            Message::Text(text) => json!({ "text": text.as_str() }),
            Message::Binary(bytes) => json!({ "binary": hex(bytes) }),
        })
        .collect();
    let pongs: Vec<String> = received.pongs.iter().map(|payload| hex(payload)).collect();
    let close = received.close.map(|(code, reason)| json!({ "code": code, "reason": reason }));
    Ok(json!({
        "messages": messages,
        "pongs": pongs,
        "close": close,
        "error": received.error,
        "sent_close": received.sent_close,
    }))
}
