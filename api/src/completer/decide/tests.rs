use super::*;

const WINDOWS: Windows = Windows {
    unreadable: Duration::from_secs(120),
    turn_deadline: Duration::from_secs(1800),
    cancel: Duration::from_secs(60),
};
const KNOWN: Known = Known {
    form: Form::Current,
    turn_end: false,
    canceling: None,
    stop_requested: false,
    silent: Duration::from_secs(3),
    unclear: Duration::ZERO,
};
const LONG: Duration = Duration::from_secs(3600);

fn read(driver: Driver, log: Log) -> Seen {
    Seen::Read { driver, log }
}

fn settle(cause: Cause, sandbox: SandboxAfter) -> Action {
    Action::Settle {
        cause,
        sandbox,
        legacy: None,
    }
}

#[test]
fn the_table() {
    use SandboxAfter::{Idle, Stopping};
    let speaking = read(Driver::Speaking, Log::ReadOn);
    let ended = Known {
        turn_end: true,
        ..KNOWN
    };
    let unclear = Known {
        unclear: LONG,
        ..KNOWN
    };
    let canceling = |secs| Known {
        canceling: Some(Duration::from_secs(secs)),
        ..KNOWN
    };
    let legacy = Known {
        form: Form::Legacy,
        ..KNOWN
    };
    let over = Driver::Over(TurnState::Failed);
    let rows: &[(Seen, Known, Action)] = &[
        // the ordinary life
        (
            read(Driver::NotBegun, Log::Absent),
            KNOWN,
            Action::Wait(Again::Unclear),
        ),
        (speaking, KNOWN, Action::Wait(Again::NextTick)),
        (
            read(Driver::Speaking, Log::More),
            KNOWN,
            Action::Wait(Again::AtOnce),
        ),
        (
            read(Driver::Done, Log::Ended),
            ended,
            settle(Cause::DriverEnded, Idle),
        ),
        (
            read(Driver::Speaking, Log::Ended),
            ended,
            settle(Cause::DriverEnded, Idle),
        ),
        (
            read(over, Log::Ended),
            ended,
            settle(Cause::DriverEnded, Stopping),
        ),
        // a turn-end that is known is never thrown away
        (Seen::Gone, ended, settle(Cause::DriverEnded, Stopping)),
        (Seen::Unreadable, ended, settle(Cause::DriverEnded, Idle)),
        // gone is gone, unreadable is not
        (Seen::Gone, KNOWN, settle(Cause::Lost, Stopping)),
        (Seen::Unreadable, KNOWN, Action::Wait(Again::Unclear)),
        (
            Seen::Unreadable,
            Known {
                unclear: Duration::from_secs(119),
                ..KNOWN
            },
            Action::Wait(Again::Unclear),
        ),
        (Seen::Unreadable, unclear, settle(Cause::Lost, Stopping)),
        // a gateway that is away is no fault of the sandbox
        (Seen::Running, unclear, Action::Wait(Again::NextTick)),
        (Seen::Running, ended, settle(Cause::DriverEnded, Idle)),
        (
            Seen::Running,
            Known {
                silent: LONG,
                ..KNOWN
            },
            Action::Wait(Again::NextTick),
        ),
        (Seen::Running, canceling(59), Action::Wait(Again::Unclear)),
        (
            Seen::Running,
            canceling(60),
            settle(Cause::Canceled, Stopping),
        ),
        // a log that should be there, whole, ours
        (
            read(Driver::Done, Log::ReadOn),
            KNOWN,
            Action::Wait(Again::Unclear),
        ),
        (
            read(Driver::Done, Log::ReadOn),
            unclear,
            settle(Cause::DriverEnded, Stopping),
        ),
        (
            read(Driver::Done, Log::Torn),
            unclear,
            settle(Cause::DriverEnded, Stopping),
        ),
        (
            read(Driver::Speaking, Log::Foreign),
            unclear,
            settle(Cause::DriverEnded, Stopping),
        ),
        (
            read(Driver::NotBegun, Log::Absent),
            unclear,
            settle(Cause::Lost, Stopping),
        ),
        // deadline and stop
        (
            speaking,
            Known {
                silent: LONG,
                ..KNOWN
            },
            Action::StopThenSettle {
                cause: Cause::Deadline,
            },
        ),
        (
            speaking,
            Known {
                stop_requested: true,
                ..KNOWN
            },
            Action::Stop,
        ),
        // cancel harvests first, for as long as it may
        (
            speaking,
            canceling(1),
            Action::StopThenSettle {
                cause: Cause::Canceled,
            },
        ),
        (
            read(Driver::Speaking, Log::More),
            canceling(1),
            Action::Wait(Again::AtOnce),
        ),
        (
            read(Driver::Speaking, Log::More),
            canceling(60),
            settle(Cause::Canceled, Stopping),
        ),
        (
            Seen::Unreadable,
            canceling(59),
            Action::Wait(Again::Unclear),
        ),
        (
            Seen::Unreadable,
            canceling(60),
            settle(Cause::Canceled, Stopping),
        ),
        (Seen::Gone, canceling(1), settle(Cause::Lost, Stopping)),
        (
            read(Driver::Done, Log::Ended),
            Known {
                turn_end: true,
                ..canceling(1)
            },
            settle(Cause::DriverEnded, Stopping),
        ),
        // the old form: no turn-end, one turn, stopped by deletion
        (speaking, legacy, Action::Wait(Again::NextTick)),
        (
            read(Driver::NotBegun, Log::Absent),
            legacy,
            Action::Wait(Again::NextTick),
        ),
        (
            read(over, Log::ReadOn),
            legacy,
            Action::Settle {
                cause: Cause::DriverEnded,
                sandbox: Stopping,
                legacy: Some(TurnState::Failed),
            },
        ),
        (
            speaking,
            Known {
                stop_requested: true,
                ..legacy
            },
            Action::Settle {
                cause: Cause::DriverEnded,
                sandbox: Stopping,
                legacy: Some(TurnState::Stopped),
            },
        ),
        (
            speaking,
            Known {
                silent: LONG,
                ..legacy
            },
            settle(Cause::Deadline, Stopping),
        ),
        (
            speaking,
            Known {
                canceling: Some(Duration::ZERO),
                ..legacy
            },
            settle(Cause::Canceled, Stopping),
        ),
    ];
    for (seen, known, action) in rows {
        assert_eq!(
            decide(*seen, known, &WINDOWS),
            *action,
            "{seen:?} {known:?}"
        );
    }
}
