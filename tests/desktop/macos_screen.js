// The functions of macOS that tell what is on the screen, and the notifications. The state holds what they return;
// `requested` and `shown` are what the script did.
module.exports = (state, functions) => {
  functions.CGSessionCopyCurrentDictionary = () => state.session;
  // On the screen, without what belongs to the desktop, whatever the window.
  functions.CGWindowListCopyWindowInfo = (which, window) => (which === 17 && window === 0 ? state.windows : null);
  functions.CGPreflightScreenCaptureAccess = () => state.allowed;
  functions.CGRequestScreenCaptureAccess = () => { state.requested = true; return false; };
  globalThis.Application = {currentApplication: () => ({
    displayNotification(message, options) {
      if (!this.includeStandardAdditions) throw new Error("Message not understood.");
      state.shown = [message, options];
    },
  })};
};
