//! What an attacker writes: forms in which a part of a secret stayed, packages that nobody could have, and texts that cost too much.

use std::io::Write;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cases;
use crate::planted::assert_gone;
use crate::{clean, gate, redactor, refusal};

#[test]
fn nothing_of_a_secret_stays_behind_it_or_before_it() {
    let long = "abc".repeat(100);
    let words = "correct.horse.battery.".repeat(5);
    let cases = [
        (
            format!(
                "Cookie: _ga=GA1.2.123; prefs={long}; sessionid=Zk93hfQ8vLq2RtLEAK; csrftoken=x1"
            ),
            vec!["Zk93hfQ8vLq2RtLEAK"],
        ),
        (
            "redis://:Zk93@hfQ8vLEAK@cache:6379/0".to_owned(),
            vec!["Zk93", "hfQ8vLEAK"],
        ),
        (
            "amqp://svc:a1@b2@c3LEAK@mq/vhost".to_owned(),
            vec!["a1@", "b2@", "c3LEAK"],
        ),
        (
            format!("postgres://svc:{words}LEAK9x@db.internal/x"),
            vec!["battery", "LEAK9x"],
        ),
        (
            "AWS_SECRET_ACCESS_KEY=/+5DAYirSIyzpX/f1cjuq5b/mLA4NxO9/3sH5RoP".to_owned(),
            vec!["5DAYirSIyzpX", "3sH5RoP"],
        ),
        (
            r#"{"token":"/6CMkO9vzkR+pY5o8jTL+uzaP///qVzXV6KTNIrA"}"#.to_owned(),
            vec!["6CMkO9vzkR"],
        ),
        (
            "DB_PASSWORD=q8Kx0ZcLm4Tn7.prod".to_owned(),
            vec!["q8Kx0ZcLm4Tn7"],
        ),
        (
            "DB_PASSWORD_PROD=hunter2LEAK".to_owned(),
            vec!["hunter2LEAK"],
        ),
        (
            "# of the service\nDB_PASSWORD=hunter2&LEAK9;xyz(1)\nDB_HOST=db\n".to_owned(),
            vec!["hunter2", "LEAK9", "xyz(1)"],
        ),
        (
            "export DB_PASSWORD=\"correct horse LEAK 9x\"\nDB_HOST='a b'\n".to_owned(),
            vec!["correct", "LEAK"],
        ),
        (
            r#"{"passwordProd":"hunter2LEAK"}"#.to_owned(),
            vec!["hunter2LEAK"],
        ),
    ];
    for (text, gone) in cases {
        let gone: Vec<String> = gone.into_iter().map(str::to_owned).collect();
        assert_gone(gate(), &text, &gone, &text);
        let part = cases::record(0, &cases::output(&text));
        assert_gone(gate(), &part, &gone, &part);
    }
}

/// Who can put a full stop behind a password must not be able to make a conversation one that nobody may have.
#[test]
fn a_secret_at_the_end_of_a_sentence_is_taken_out_for_good() {
    for text in [
        "curl -u 'ada:hunter2hunter.' https://x.io",
        "curl -u ada:hunter2hunter. https://x.io",
        "sshpass -p 'hunter2hunter.' ssh a",
        "login ada password hunter2hunter.",
        "curl -u 'admin:pLI8Q~qV8ib8HDy88YtDtXbiufMdI8X2Y4rUmer.' x",
    ] {
        assert_gone(gate(), text, &["hunter2hunter".to_owned()], text);
        let part = cases::record(0, &cases::output(text));
        assert_gone(gate(), &part, &["hunter2hunter".to_owned()], &part);
    }
}

#[test]
fn paths_and_files_are_no_secrets() {
    for text in [
        "key_file = /etc/ssl/private/service.pem",
        "TOKEN_PATH=/var/run/secrets/kubernetes.io/serviceaccount/token",
        "password_file: config2.yaml",
        "DB_HOST='a b 1'\nGREETING=\"hello 2 you\"\n",
        "const hint = password ? \"enter 8 of them\" : none",
        "https://acme.io:8080/a@b",
        "visit https://acme.io/@ada/posts",
    ] {
        assert_eq!(clean(&redactor(), text), text);
        assert_eq!(refusal(gate(), text), Vec::<String>::new());
    }
}

/// The time of a text beside that of one as long without anything in it.
fn within(most: Duration, name: &str, text: &str) {
    let begun = Instant::now();
    let _ = clean(&redactor(), text);
    let _ = refusal(gate(), text);
    let took = begun.elapsed();
    assert!(took < most, "{name}: {took:?} for {} bytes", text.len());
}

/// Each took ten seconds and more, growing with the square of its length.
#[test]
fn many_finds_in_few_pieces_are_no_trap() {
    let mails = "ada@acme.io\\n".repeat(40_000);
    let delta = |n: usize| {
        format!(
            "{{\"session\":\"ags-1\",\"turn\":1,\"part_index\":{n},\"part\":{{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"{mails}\"}}}}\n"
        )
    };
    let most = Duration::from_secs(5);
    within(most, "two deltas", &(delta(0) + &delta(1)));
    within(
        most,
        "an array",
        &format!("{{\"input\":[\"PRIVATE KEY\",\"{mails}\"]}}"),
    );
}

/// What is unpacked in vain is paid for.
#[test]
fn compressed_bytes_by_the_hundred_are_unpacked_within_one_budget() {
    let packed = |length: usize| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(&vec![b'0'; length]).unwrap();
        STANDARD.encode(gz.finish().unwrap())
    };
    for length in [4 * 1024 * 1024 - 10, 4 * 1024 * 1024 + 10] {
        let one = packed(length);
        let text = vec![one.as_str(); 190].join(" | ");
        within(Duration::from_secs(5), "bombs", &text);
    }
}
