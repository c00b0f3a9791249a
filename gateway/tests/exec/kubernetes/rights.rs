//! The gateway's service account, and what a cluster refuses besides.

use bex_proto::launch::POD_DRIVER_BIN;
use bex_testk8s::{Cluster, ExecPlan, Image, Options, Refusal, Style, rights};

use super::world::{GATEWAY, IMAGE, NS, World, read, run, world_pod};
use crate::real::driver_bin;

async fn world(style: Style, rules: &[(&str, &[&str])]) -> World {
    let cluster = Cluster::start(Options {
        style,
        ..Options::default()
    })
    .await
    .expect("a cluster");
    cluster.namespace(NS);
    cluster.image(IMAGE, Image::pause().file(POD_DRIVER_BIN, driver_bin()));
    cluster.grant(NS, GATEWAY, rules);
    let world = World::over(cluster).await;
    let pod = world_pod(&world.session);
    world.with_pod(pod).await
}

#[tokio::test]
async fn get_pods_and_get_and_create_on_exec_are_needed_and_enough() {
    let exec: &[&str] = &["get", "create"];
    for (style, rules, works) in [
        (Style::V1_36, rights::GATEWAY, true),
        (
            Style::V1_36,
            &[("pods", &["get"]), ("pods/exec", &["get"])],
            false,
        ),
        (
            Style::V1_34,
            &[("pods", &["get"]), ("pods/exec", &["get"])],
            true,
        ),
        (
            Style::V1_36,
            &[("pods", &["get"]), ("pods/exec", &["create"])],
            false,
        ),
        (Style::V1_36, &[("pods/exec", exec)], false),
        (Style::V1_36, &[], false),
    ] {
        let world = world(style, rules).await;
        let answer = world.call(&run("true", None)).await;
        if works {
            assert_eq!(answer.exit().exit_code, 0, "{style:?} {rules:?}");
        } else {
            // never "gone", never "unsupported": somebody must grant it
            assert_eq!(
                answer.problem(),
                (502, "exec_transport".into()),
                "{style:?} {rules:?}"
            );
        }
    }
}

#[tokio::test]
async fn other_namespaces_are_refused() {
    let world = World::new(Options::default()).await;
    world.cluster.namespace("other-sandbox");
    let other = world
        .cluster
        .create("other-sandbox", world_pod(&world.session))
        .expect("made");
    world.cluster.ready("other-sandbox", &world.pod).await;
    let operation = run("true", None);
    let mut claims = world.house.claims(&operation);
    claims.ns = "other-sandbox".into();
    claims.pod_uid = super::world::uid(&other);
    let answer = world
        .house
        .ask(
            Some(&claims.sign(&world.house.ring)),
            crate::house::body(&operation),
        )
        .await;
    assert_eq!(answer.problem(), (502, "exec_transport".into()));
    let refused = world.cluster.requests();
    assert!(
        refused
            .iter()
            .any(|r| r.namespace == "other-sandbox" && r.status == 403),
        "{refused:?}"
    );
    assert!(world.cluster.execs().is_empty());
}

#[tokio::test]
async fn a_subprotocol_is_told_apart_from_a_right() {
    let world = World::new(Options::default()).await;
    // no body: a subprotocol; a body: a right, which somebody must grant
    for (refusal, answer) in [
        (Refusal::EmptyForbidden, (501, "unsupported")),
        (Refusal::GetOnly, (502, "exec_transport")),
        (Refusal::Forbidden, (502, "exec_transport")),
        (Refusal::Unauthorized, (502, "exec_transport")),
        (Refusal::TooManyRequests, (502, "exec_transport")),
        (Refusal::KubeletDown, (502, "exec_transport")),
        (Refusal::Unavailable, (502, "exec_transport")),
    ] {
        world.cluster.next_exec(ExecPlan::new().refuse(refusal));
        let (status, code) = world.call(&read(0)).await.problem();
        assert_eq!((status, code.as_str()), answer, "{refusal:?}");
    }
    assert_eq!(
        world.call(&read(0)).await.exit().exit_code,
        0,
        "and then it works"
    );
    world.nothing_is_left().await;
}

#[tokio::test]
async fn an_api_server_that_cannot_say_says_nothing_about_the_pod() {
    let world = World::new(Options::default()).await;
    for refusal in [
        Refusal::Unavailable,
        Refusal::TooManyRequests,
        Refusal::Unauthorized,
        Refusal::Hang,
    ] {
        world.cluster.refuse("get", "pods", refusal);
        assert_eq!(
            world.call(&read(0)).await.problem(),
            (502, "exec_transport".into()),
            "{refusal:?}"
        );
    }
    // the exec itself: neither upgraded nor refused
    world.cluster.refuse("get", "pods/exec", Refusal::Hang);
    assert_eq!(
        world.call(&read(0)).await.problem(),
        (502, "exec_transport".into())
    );
    world.cluster.kill_api_server();
    assert_eq!(
        world.call(&read(0)).await.problem(),
        (502, "exec_transport".into())
    );
    world.cluster.start_api_server().await.expect("again");
    assert_eq!(world.call(&read(0)).await.exit().exit_code, 0);
}
