/// Asserts that something was refused with an error of this form. Returns the error, or what follows the arrow.
macro_rules! assert_refused {
    ($outcome:expr, $form:pat => $value:expr) => {
        match $outcome {
            Err($form) => $value,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it is not refused"),
        }
    };
    ($outcome:expr, $form:pat) => {
        assert_refused!($outcome, error @ $form => error)
    };
}
