//! The LISTEN connection.

use bex_proto::{Chain, limits};
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_postgres::{AsyncMessage, Client, Config, Notification};
use tracing::{debug, warn};

use super::{Event, Outlet, QUEUE, RECONNECT};
use crate::pool::CONNECT_TIMEOUT;
use crate::tls::DbTls;
use crate::wake::Channel;

/// The channel of the connection's notifications to itself.
const PROOF: &str = "bex_proof";

pub(super) async fn run(pg: Config, tls: DbTls, mut outlet: Outlet) {
    let (first, last) = RECONNECT;
    let mut delay = first;
    while !outlet.sender.is_closed() {
        match serve(&pg, &tls, &mut outlet).await {
            Ended::Never => {}
            Ended::AfterService => delay = first,
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(last);
    }
}

/// How one connection's life ended.
enum Ended {
    /// It never listened.
    Never,
    /// It listened for a while.
    AfterService,
}

async fn serve(pg: &Config, tls: &DbTls, outlet: &mut Outlet) -> Ended {
    let connected = timeout(CONNECT_TIMEOUT, pg.connect(tls.clone())).await;
    let (client, mut connection) = match connected {
        Ok(Ok(pair)) => pair,
        Ok(Err(error)) => {
            warn!(error = %Chain(&error), "cannot connect to listen");
            return Ended::Never;
        }
        Err(_) => {
            warn!("connecting to listen timed out");
            return Ended::Never;
        }
    };
    let (sender, mut notifications) = mpsc::channel(QUEUE);
    // the connection must be driven while its client waits for answers, so it has a task of its own
    let driver = tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(message) = messages.next().await {
            match message {
                Ok(AsyncMessage::Notification(notification)) => {
                    if sender.send(notification).await.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    debug!(error = %Chain(&error), "listen connection ended");
                    return;
                }
            }
        }
    });
    let ended = listen(&client, &mut notifications, outlet).await;
    driver.abort();
    ended
}

async fn listen(
    client: &Client,
    notifications: &mut mpsc::Receiver<Notification>,
    outlet: &mut Outlet,
) -> Ended {
    let mut sql: String = Channel::ALL
        .iter()
        .map(|channel| format!("LISTEN {}; ", channel.as_str()))
        .collect();
    sql.push_str(&format!("LISTEN {PROOF}"));
    match timeout(CONNECT_TIMEOUT, client.batch_execute(&sql)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            warn!(error = %Chain(&error), "cannot listen");
            return Ended::Never;
        }
        Err(_) => {
            warn!("asking to listen timed out");
            return Ended::Never;
        }
    }
    outlet.resumed();
    let mut proof = interval(limits::LISTEN_PROOF);
    proof.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut owed = false;
    loop {
        tokio::select! {
            notification = notifications.recv() => match notification {
                Some(notification) if notification.channel() == PROOF => owed = false,
                Some(notification) => forward(&notification, outlet),
                None => return Ended::AfterService,
            },
            _ = proof.tick() => {
                outlet.settle_debt();
                if owed {
                    warn!("the listen connection did not hear itself within its interval");
                    return Ended::AfterService;
                }
                let notify = client.batch_execute("NOTIFY bex_proof");
                if !matches!(timeout(CONNECT_TIMEOUT, notify).await, Ok(Ok(()))) {
                    return Ended::AfterService;
                }
                owed = true;
            }
        }
    }
}

fn forward(notification: &Notification, outlet: &mut Outlet) {
    if let Some(channel) = Channel::parse(notification.channel()) {
        outlet.send(Event::Notified {
            channel,
            payload: notification.payload().to_owned(),
        });
    }
}
