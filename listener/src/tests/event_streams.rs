//! Event streams over HTTP/1.1, which are told without hyper.

use bex_proto::limits;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

use super::*;

fn event_stream(body: TestBody) -> Response<TestBody> {
    Response::builder()
        .header("content-type", "text/event-stream")
        .header("x-more", "two")
        .body(body)
        .expect("an answer")
}

#[tokio::test]
async fn its_bytes_are_what_http_says() {
    let (feed, body) = fed("data: 1\n\n");
    feed.send(Ok("")).await.expect("room");
    feed.send(Ok("data: a second one\n\n")).await.expect("room");
    drop(feed);
    let server = start_once(event_stream(body)).await;
    let mut text = String::new();
    let mut stream = ask(server.address).await;
    stream.read_to_string(&mut text).await.expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let (date, lines): (Vec<_>, Vec<_>) = head.split("\r\n").partition(|l| l.starts_with("date: "));
    assert_eq!(
        lines,
        [
            "HTTP/1.1 200 OK",
            "transfer-encoding: chunked",
            "connection: close",
            "content-type: text/event-stream",
            "x-more: two"
        ]
    );
    let date = httpdate::parse_http_date(date[0].trim_start_matches("date: ")).expect("a date");
    assert!(
        date.elapsed()
            .is_ok_and(|ago| ago < Duration::from_secs(60))
    );
    assert_eq!(
        body,
        "9\r\ndata: 1\n\n\r\n14\r\ndata: a second one\n\n\r\n0\r\n\r\n"
    );
}

#[tokio::test]
async fn a_client_of_http_1_0_is_given_no_chunks() {
    let (feed, body) = fed("data: 1\n\n");
    drop(feed);
    let server = start_once(event_stream(body)).await;
    let mut stream = TcpStream::connect(server.address)
        .await
        .expect("it listens");
    stream
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .await
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    assert!(text.ends_with("\r\n\r\ndata: 1\n\n"), "{text}");
}

#[tokio::test]
async fn a_second_request_of_a_connection_may_be_one() {
    let server = start(|request| async move {
        match request.uri().path() {
            "/stream" => event_stream(full("data: 1\n\n")),
            _ => Response::new(full("hello")),
        }
    })
    .await;
    let mut sender = connect(server.address).await;
    for (path, said) in [("/", "hello"), ("/", "hello"), ("/stream", "data: 1\n\n")] {
        sender.ready().await.expect("kept alive");
        let answer = sender.send_request(get(path)).await.expect("an answer");
        let body = answer.into_body().collect().await.expect("a whole body");
        assert_eq!(body.to_bytes(), said);
    }
}

#[tokio::test]
async fn one_that_breaks_off_has_no_end() {
    let (feed, body) = fed("begun");
    let server = start_once(event_stream(body)).await;
    let mut sender = connect(server.address).await;
    let answer = sender.send_request(get("/")).await.expect("an answer");
    feed.send(Err("broken".into())).await.expect("room");
    assert!(answer.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_viewer_that_leaves_is_noticed_while_nothing_is_said() {
    let (feed, body) = fed("begun");
    let server = start_once(event_stream(body)).await;
    let mut stream = ask(server.address).await;
    stream.read_u8().await.expect("a head");
    drop(stream);
    // the body is dropped, and so is the receiver in it
    feed.closed().await;
}

#[tokio::test]
async fn one_that_is_open_goes_on_when_the_listener_stops() {
    let (feed, body) = fed("begun ");
    let server = start_once(event_stream(body)).await;
    let mut sender = connect(server.address).await;
    let answer = sender.send_request(get("/")).await.expect("an answer");
    let finish = tokio::spawn(server.serving.finish(Duration::from_secs(10)));
    feed.send(Ok("to its end")).await.expect("the body lives");
    drop(feed);
    let whole = answer.into_body().collect().await.expect("a whole body");
    assert_eq!(whole.to_bytes(), "begun to its end");
    assert_eq!(finish.await.expect("no panic"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_open_at_the_deadline_is_cut() {
    let (_feed, body) = fed("begun");
    let server = start_once(event_stream(body)).await;
    let mut sender = connect(server.address).await;
    let answer = sender.send_request(get("/")).await.expect("an answer");
    assert_eq!(server.serving.finish(Duration::from_secs(20)).await, 1);
    assert!(answer.into_body().collect().await.is_err());
}

/// A reader with a small window that has asked.
async fn narrow(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("set");
    let mut stream = socket.connect(server.address).await.expect("it listens");
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("sent");
    stream
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_is_cut() {
    let server = start(|_| async { event_stream(endless(16 * 1024)) }).await;
    let stream = narrow(&server).await;
    within(limits::WRITE_STALL * 2, || {
        server.counts.stalled() == 1 && server.counts.open() == 0
    })
    .await;
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn the_kernel_takes_little_for_a_reader_that_takes_nothing() {
    const PIECE: usize = 1024;
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let pieces = futures::stream::repeat_with(move || {
        counted.fetch_add(PIECE, Ordering::SeqCst);
        Ok(Frame::data(Bytes::from(vec![b'x'; PIECE])))
    });
    let server = start_once(event_stream(StreamBody::new(pieces).boxed_unsync())).await;
    let stream = narrow(&server).await;
    within(limits::WRITE_STALL * 2, || server.counts.stalled() == 1).await;
    // so that one who reads 1 kB/s is given more in time; without a bound it is megabytes
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken < 64 * 1024, "{taken}");
    drop(stream);
}
