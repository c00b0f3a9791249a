use std::path::Path;

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;

const STREAMS: &str = "https://stream.example:8443/attach";

fn built() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect(name);
    std::fs::create_dir(dir.path().join("assets")).expect("a directory");
    write("index.html", "<!doctype html>the page");
    write("icon.svg", "<svg/>");
    write("assets/main-abc.js", "script");
    write("assets/main-abc.js.gz", "packed");
    dir
}

fn app(dir: &Path) -> Router {
    routes(Some(Ui::load(dir, STREAMS).expect("it is built")))
        .fallback(|| async { ApiError::from(Code::NotFound) })
}

async fn ask(app: &Router, path: &str, headers: &[(&str, &str)]) -> (Response<()>, String) {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("a request");
    let answer = app.clone().oneshot(request).await.expect("an answer");
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    (
        Response::from_parts(parts, ()),
        String::from_utf8_lossy(&body).into_owned(),
    )
}

fn header<'a>(response: &'a Response<()>, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("visible"))
}

#[tokio::test]
async fn the_page_stands_at_every_place_it_may_call_its_own() {
    let dir = built();
    let app = app(dir.path());
    for path in [
        "/ui/",
        "/ui/sessions/ags-abc",
        "/ui/executions",
        "/ui/index.html",
    ] {
        let (answer, body) = ask(&app, path, &[]).await;
        assert_eq!(
            (answer.status(), &*body),
            (StatusCode::OK, "<!doctype html>the page"),
            "{path}"
        );
        assert_eq!(header(&answer, "content-type"), "text/html; charset=utf-8");
        assert_eq!(header(&answer, "cache-control"), "no-cache");
        assert_eq!(header(&answer, "referrer-policy"), "no-referrer");
    }
    let (answer, _) = ask(&app, "/ui", &[]).await;
    assert_eq!(
        (answer.status(), header(&answer, "location")),
        (StatusCode::PERMANENT_REDIRECT, "/ui/")
    );
    let (answer, _) = ask(&app, "/", &[]).await;
    assert_eq!(
        (answer.status(), header(&answer, "location")),
        (StatusCode::TEMPORARY_REDIRECT, "/ui/")
    );
}

#[tokio::test]
async fn the_policy_names_the_gateways_origin_and_nothing_inline() {
    let dir = built();
    let (answer, _) = ask(&app(dir.path()), "/ui/", &[]).await;
    let policy = header(&answer, "content-security-policy");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(
        policy.contains("connect-src 'self' https://stream.example:8443;"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn hashed_files_are_kept_for_ever_and_packed_where_the_reader_unpacks() {
    let dir = built();
    let app = app(dir.path());
    let path = "/ui/assets/main-abc.js";
    let (answer, body) = ask(&app, path, &[("accept-encoding", "br, gzip")]).await;
    assert_eq!(
        (header(&answer, "content-encoding"), &*body),
        ("gzip", "packed")
    );
    assert_eq!(
        header(&answer, "cache-control"),
        "public, max-age=31536000, immutable"
    );
    for coding in ["", "br", "gzip;q=0"] {
        let (answer, body) = ask(&app, path, &[("accept-encoding", coding)]).await;
        assert_eq!(
            (header(&answer, "content-encoding"), &*body),
            ("", "script"),
            "{coding}"
        );
    }
    assert_eq!(
        ask(&app, "/ui/assets/main-abc.js.gz", &[]).await.0.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_page_that_is_known_is_not_sent_again() {
    let dir = built();
    let app = app(dir.path());
    let (first, _) = ask(&app, "/ui/", &[]).await;
    let tag = header(&first, "etag").to_owned();
    let weak = format!("\"other\", W/{tag}");
    for known in [&tag, &weak] {
        let (again, body) = ask(&app, "/ui/", &[("if-none-match", known)]).await;
        assert_eq!(
            (again.status(), &*body),
            (StatusCode::NOT_MODIFIED, ""),
            "{known}"
        );
    }
    let (other, _) = ask(&app, "/ui/", &[("if-none-match", "\"other\"")]).await;
    assert_eq!(other.status(), StatusCode::OK);
}

#[tokio::test]
async fn nothing_else_of_the_machine_is_to_be_had() {
    let outer = tempfile::tempdir().expect("a directory");
    std::fs::write(outer.path().join("secret.txt"), "secret").expect("written");
    let dir = outer.path().join("dist");
    std::fs::rename(built().keep(), &dir).expect("moved");
    std::os::unix::fs::symlink(outer.path().join("secret.txt"), dir.join("link.txt"))
        .expect("linked");
    let app = app(&dir);
    for path in [
        "/ui/../secret.txt",
        "/ui/%2e%2e/secret.txt",
        "/ui/..%2fsecret.txt",
        "/ui/assets/../../secret.txt",
        "/ui//etc/passwd.txt",
        "/ui/link.txt",
        "/ui/assets/other",
        "/ui/missing.js",
        "/elsewhere",
    ] {
        let (answer, body) = ask(&app, path, &[]).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(
            header(&answer, "content-type"),
            "application/problem+json",
            "{path}"
        );
        assert!(!body.contains("secret\""), "{path}");
    }
}

#[tokio::test]
async fn without_a_dashboard_there_is_nothing_at_its_place() {
    let app = routes(None).fallback(|| async { ApiError::from(Code::NotFound) });
    for path in ["/", "/ui", "/ui/"] {
        assert_eq!(ask(&app, path, &[]).await.0.status(), StatusCode::NOT_FOUND);
    }
}

#[test]
fn what_is_no_dashboard_is_refused() {
    let empty = tempfile::tempdir().expect("a directory");
    assert!(matches!(
        Ui::load(empty.path(), STREAMS),
        Err(UiFault::NoPage)
    ));
    let missing = empty.path().join("missing");
    assert!(matches!(
        Ui::load(&missing, STREAMS),
        Err(UiFault::Unreadable(_))
    ));
    let dir = built();
    assert!(matches!(
        Ui::load(dir.path(), "stream"),
        Err(UiFault::Origin)
    ));
    std::fs::create_dir_all(dir.path().join("a/b/c/d/e/f")).expect("made");
    assert!(matches!(
        Ui::load(dir.path(), STREAMS),
        Err(UiFault::TooLarge)
    ));
}
